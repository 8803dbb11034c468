// Package bucket keeps backups in S3-compatible storage, by the S3 client of the AWS SDK. It knows objects of bytes, and nothing of backups.
//
// A stranger may answer in the place of the storage: lists are bounded, and whoever reads an object must stop at the first byte that
// cannot be right.
package bucket
