package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// mostListed is how many objects of a bucket are listed.
const mostListed = 100_000

// ErrNone is the error for an object that does not exist.
var ErrNone = errors.New("there is no such object")

// about says which object an error is about. It names no secret: the client's errors have the answer of the storage.
func (b *Bucket) about(key string, err error) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*types.NoSuchKey](err); is {
		err = ErrNone
	} else if _, is := errors.AsType[*types.NotFound](err); is {
		err = ErrNone
	}
	return fmt.Errorf("s3://%s/%s: %w", b.name, key, err)
}

// watched gives a context that ends when nothing has moved for so long; moved says that something has.
func (b *Bucket) watched(ctx context.Context) (in context.Context, moved func(), stop func()) {
	in, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(b.opts.Idle, func() { cancel(fmt.Errorf("nothing has moved for %v", b.opts.Idle)) })
	return in, func() { timer.Reset(b.opts.Idle) }, func() {
		timer.Stop()
		cancel(nil)
	}
}

// movingReader tells that bytes move.
type movingReader struct {
	io.ReadSeeker
	moved func()
}

func (r movingReader) Read(p []byte) (int, error) {
	r.moved()
	return r.ReadSeeker.Read(p)
}

// Has reports whether an object exists.
func (b *Bucket) Has(ctx context.Context, key string) (bool, error) {
	ctx, _, stop := b.watched(ctx)
	defer stop()
	_, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: &key})
	if err = b.about(key, err); errors.Is(err, ErrNone) {
		return false, nil
	}
	return err == nil, err
}

// Put uploads an object, in parts if it is large. An upload that fails leaves no parts, if the storage can still be asked.
func (b *Bucket) Put(ctx context.Context, key string, in io.ReaderAt, size int64) error {
	if size <= b.opts.PartSize {
		ctx, moved, stop := b.watched(ctx)
		defer stop()
		_, err := b.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &b.name, Key: &key, ContentLength: &size, Body: movingReader{io.NewSectionReader(in, 0, size), moved}})
		return b.about(key, err)
	}
	begun, err := b.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &b.name, Key: &key})
	if err != nil {
		return b.about(key, err)
	}
	if err = b.putParts(ctx, key, begun.UploadId, in, size); err == nil {
		return nil
	}
	// The signal that ended ctx must not keep the parts, which cost money, in the storage.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.opts.Idle)
	defer cancel()
	_, abort := b.client.AbortMultipartUpload(clean, &s3.AbortMultipartUploadInput{Bucket: &b.name, Key: &key, UploadId: begun.UploadId})
	if abort != nil {
		abort = fmt.Errorf("the parts that were uploaded could not be deleted, and cost money until they are: %w", abort)
	}
	return b.about(key, errors.Join(err, abort))
}

func (b *Bucket) putParts(ctx context.Context, key string, upload *string, in io.ReaderAt, size int64) error {
	part := max(b.opts.PartSize, size/mostParts+1)
	var done []types.CompletedPart
	for from := int64(0); from < size; from += part {
		number, length := int32(len(done)+1), min(part, size-from)
		tag, err := func() (*string, error) {
			ctx, moved, stop := b.watched(ctx)
			defer stop()
			out, err := b.client.UploadPart(ctx, &s3.UploadPartInput{Bucket: &b.name, Key: &key, UploadId: upload, PartNumber: &number,
				ContentLength: &length, Body: movingReader{io.NewSectionReader(in, from, length), moved}})
			if err != nil {
				return nil, err
			}
			return out.ETag, nil
		}()
		if err != nil {
			return fmt.Errorf("part %d: %w", number, err)
		}
		done = append(done, types.CompletedPart{ETag: tag, PartNumber: &number})
	}
	_, err := b.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{Bucket: &b.name, Key: &key, UploadId: upload,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: done}})
	return err
}

// Get opens an object. The caller must stop reading at the first byte that cannot be right, and close it.
func (b *Bucket) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	ctx, moved, stop := b.watched(ctx)
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	if err != nil {
		stop()
		return nil, b.about(key, err)
	}
	size := int64(-1)
	if out.ContentLength != nil {
		size = *out.ContentLength
	}
	return &object{ctx: ctx, b: b, key: key, in: out.Body, left: size, moved: moved, stop: stop}, nil
}

// object reads an object, and fails if it ends too early.
type object struct {
	ctx         context.Context
	b           *Bucket
	key         string
	in          io.ReadCloser
	left        int64 // -1: unknown
	moved, stop func()
}

func (o *object) Read(p []byte) (int, error) {
	n, err := o.in.Read(p)
	o.moved()
	if o.left >= 0 {
		o.left -= int64(n)
	}
	switch {
	case err == io.EOF && o.left > 0:
		err = o.b.about(o.key, io.ErrUnexpectedEOF)
	case err != nil && err != io.EOF:
		if cause := context.Cause(o.ctx); cause != nil {
			err = cause
		}
		err = o.b.about(o.key, err)
	}
	return n, err
}

func (o *object) Close() error {
	o.stop()
	return o.in.Close()
}

// List returns the keys that begin with a prefix.
func (b *Bucket) List(ctx context.Context, prefix string) (keys []string, err error) {
	for from := (*string)(nil); ; {
		one, _, stop := b.watched(ctx)
		out, err := b.client.ListObjectsV2(one, &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix, ContinuationToken: from})
		stop()
		if err != nil {
			return nil, b.about(prefix, err)
		}
		for _, o := range out.Contents {
			keys = append(keys, aws.ToString(o.Key))
		}
		switch {
		case len(keys) > mostListed:
			return nil, b.about(prefix, fmt.Errorf("more than %d objects: use a prefix for the backups alone", mostListed))
		case !aws.ToBool(out.IsTruncated):
			return keys, nil
		case out.NextContinuationToken == nil || from != nil && *from == *out.NextContinuationToken || len(out.Contents) == 0:
			return nil, b.about(prefix, errors.New("the storage lists without an end"))
		}
		from = out.NextContinuationToken
	}
}

// Remove deletes an object.
func (b *Bucket) Remove(ctx context.Context, key string) error {
	ctx, _, stop := b.watched(ctx)
	defer stop()
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: &key})
	return b.about(key, err)
}
