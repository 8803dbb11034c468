package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/bucket"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// Where backups go to and come from: a file, a standard stream, or S3-compatible storage.

// standard is the name of the standard output or the standard input.
const standard = "-"

// s3Options are the flags for S3-compatible storage.
type s3Options struct{ bucket.Options }

func (o *s3Options) define(fs *flag.FlagSet) {
	fs.StringVar(&o.Endpoint, "s3-endpoint", "", "`url` of S3-compatible storage for s3://BUCKET/KEY (default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or that of AWS)")
	fs.StringVar(&o.Region, "s3-region", "", "`name` of its region (default: AWS_REGION, AWS_DEFAULT_REGION, or us-east-1)")
	fs.StringVar(&o.CredentialsFile, "s3-credentials-file", "", "`file` in the format of ~/.aws/credentials (default: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SHARED_CREDENTIALS_FILE)")
}

// bucket returns the bucket of a URL, and the key.
func (o *s3Options) bucket(name string) (*bucket.Bucket, string, error) {
	opts := o.Options
	if opts.Getenv == nil {
		opts.Getenv = os.Getenv
	}
	return bucket.Open(name, opts)
}

// open opens a backup for reading: a file, the standard input, or an object.
func (o *s3Options) open(ctx context.Context, name string) (io.ReadCloser, error) {
	switch {
	case name == standard:
		return io.NopCloser(os.Stdin), nil
	case bucket.IsURL(name):
		b, key, err := o.bucket(name)
		if err != nil {
			return nil, err
		}
		return b.Get(ctx, key)
	}
	return os.Open(name)
}

// read passes a backup to the function read.
func (o *s3Options) read(ctx context.Context, name string, read func(io.Reader) (raftfsm.BackupFacts, error)) (facts raftfsm.BackupFacts, err error) {
	in, err := o.open(ctx, name)
	if err != nil {
		return facts, err
	}
	defer in.Close()
	if facts, err = read(in); err != nil {
		return facts, fmt.Errorf("%s: %w", name, err)
	}
	return facts, nil
}

// fetch returns a backup as a file that can be read twice. One that is no file is copied, and checked on the way: a stranger may send
// without end.
func (o *s3Options) fetch(ctx context.Context, name string) (*os.File, error) {
	if name != standard && !bucket.IsURL(name) {
		return os.Open(name)
	}
	in, err := o.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	f, err := nameless()
	if err != nil {
		return nil, err
	}
	if _, err = raftfsm.CheckBackup(io.TeeReader(in, f)); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return f, nil
}

// nameless returns a temporary file that is gone when it is closed, however the process ends: a backup has all values in clear text.
func nameless() (*os.File, error) {
	f, err := os.CreateTemp("", "lockstep-backup-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// takeTo takes a backup from a node to a writer, such as the standard output. Only if the error is nil, what was written is a backup.
func takeTo(ctx context.Context, o adminOptions, w io.Writer) (facts raftfsm.BackupFacts, err error) {
	c, err := dialNode(o)
	if err != nil {
		return facts, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	facts, complete, err := receiveBackup(o, c, w)
	if err != nil && ctx.Err() != nil {
		err = errors.New("a signal has ended the backup")
	}
	facts.Partial = facts.Partial || !complete // a node of an earlier version does not say it in the file
	return facts, err
}

// takeToBucket takes a backup from a node to an object, whose name depends on whether the backup may lack writes. It reads the object back, and
// leaves none that is not what the node has sent.
func takeToBucket(ctx context.Context, o adminOptions, s *s3Options, name func(partial bool) string) (url string, facts raftfsm.BackupFacts, err error) {
	f, err := nameless()
	if err != nil {
		return "", facts, err
	}
	defer f.Close()
	sum := sha256.New()
	if facts, err = takeTo(ctx, o, io.MultiWriter(f, sum)); err != nil {
		return "", facts, err
	}
	url = name(facts.Partial)
	b, key, err := s.bucket(url)
	if err != nil {
		return "", facts, err
	}
	switch there, err := b.Has(ctx, key); {
	case err != nil:
		return "", facts, err
	case there:
		return "", facts, fmt.Errorf("%s exists: name another object, or remove it first", url)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", facts, err
	}
	if err := b.Put(ctx, key, f, size); err != nil {
		return "", facts, err
	}
	if err := readBack(ctx, b, key, sum.Sum(nil)); err != nil {
		err = fmt.Errorf("%w; the object is no backup", err)
		if gone := b.Remove(context.WithoutCancel(ctx), key); gone != nil {
			err = fmt.Errorf("%w, and could not be deleted: %w", err, gone)
		}
		return "", facts, err
	}
	return url, facts, nil
}

// readBack reads an object that was uploaded, and checks that it is a backup, and the one that was meant.
func readBack(ctx context.Context, b *bucket.Bucket, key string, want []byte) error {
	in, err := b.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("what was uploaded could not be read back: %w", err)
	}
	defer in.Close()
	sum := sha256.New()
	if _, err := raftfsm.CheckBackup(io.TeeReader(in, sum)); err != nil {
		return fmt.Errorf("what was read back is no backup: %w", err)
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return errors.New("what was read back is another backup")
	}
	return nil
}
