package bucket

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Options say where the storage is, and who asks. The fields win over the variables AWS_….
type Options struct {
	Endpoint        string // http:// or https://; "": that of AWS for the region
	Region          string
	CredentialsFile string // in the format of ~/.aws/credentials

	Getenv   func(string) string // the environment
	PartSize int64               // of a multipart upload; 0: firstPart
	Pause    time.Duration       // the longest pause before a request is sent again; 0: the client's own
	Idle     time.Duration       // how long nothing may arrive or leave; 0: idle
}

const (
	// firstPart is the size of the parts of an upload, in bytes, and of the largest object that is uploaded at once. S3 takes 10,000 parts.
	firstPart = 64 << 20
	mostParts = 10_000
	// idle is how long nothing may arrive or leave before a request is given up.
	idle = time.Minute
	// tries is how often a request is sent if the storage is at fault.
	tries = 4
)

// Bucket is a bucket of S3-compatible storage.
type Bucket struct {
	name   string
	client *s3.Client
	opts   Options
}

// IsURL reports whether a name is that of an object in S3-compatible storage.
func IsURL(name string) bool { return strings.HasPrefix(name, "s3://") }

// Open returns the bucket of a URL s3://bucket/key, and the key.
func Open(address string, o Options) (b *Bucket, key string, err error) {
	name, key, _ := strings.Cut(strings.TrimPrefix(address, "s3://"), "/")
	if !IsURL(address) || name == "" || strings.ContainsAny(name, "@:?#") || key == "" {
		return nil, "", fmt.Errorf("%q: want s3://BUCKET/KEY", address)
	}
	get := func(own string, names ...string) string {
		for _, n := range names {
			if own == "" {
				own = o.Getenv(n)
			}
		}
		return own
	}
	o.Endpoint = get(o.Endpoint, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
	o.Region = get(o.Region, "AWS_REGION", "AWS_DEFAULT_REGION")
	if o.Region == "" {
		o.Region = "us-east-1" // most other stores ignore it
	}
	if o.PartSize == 0 {
		o.PartSize = firstPart
	}
	if o.Idle == 0 {
		o.Idle = idle
	}
	who, err := credentials(o)
	if err != nil {
		return nil, "", err
	}
	transport, err := transport(o)
	if err != nil {
		return nil, "", err
	}
	options := s3.Options{
		Region: o.Region, HTTPClient: transport,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return who, nil }),
		// Stores other than AWS may not know the checksums that the client would add. What was uploaded is read back anyway.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		Retryer: retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts = tries
			if o.Pause > 0 {
				r.MaxBackoff = o.Pause
			}
		}),
	}
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return nil, "", errors.New("the endpoint of the S3-compatible storage: want http://HOST or https://HOST, without a user")
		}
		options.BaseEndpoint, options.UsePathStyle = aws.String(o.Endpoint), true
	}
	return &Bucket{name, s3.New(options), o}, key, nil
}

// transport returns an HTTP client that gives up a server that does not answer, and that trusts AWS_CA_BUNDLE.
func transport(o Options) (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = o.Idle
	if path := o.Getenv("AWS_CA_BUNDLE"); path != "" {
		pem, err := readSmall(path)
		if err != nil {
			return nil, fmt.Errorf("AWS_CA_BUNDLE: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("AWS_CA_BUNDLE: %s has no certificate", path)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	// A redirect would send the signed request elsewhere.
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// credentials returns who asks. No error has a part of a secret.
func credentials(o Options) (aws.Credentials, error) {
	file := o.CredentialsFile
	if file == "" && o.Getenv("AWS_ACCESS_KEY_ID") == "" {
		file = o.Getenv("AWS_SHARED_CREDENTIALS_FILE")
	}
	found := map[string]string{
		"aws_access_key_id": o.Getenv("AWS_ACCESS_KEY_ID"), "aws_secret_access_key": o.Getenv("AWS_SECRET_ACCESS_KEY"), "aws_session_token": o.Getenv("AWS_SESSION_TOKEN"),
	}
	if file != "" {
		profile := o.Getenv("AWS_PROFILE")
		if profile == "" {
			profile = "default"
		}
		var err error
		if found, err = readCredentials(file, profile); err != nil {
			return aws.Credentials{}, err
		}
	}
	c := aws.Credentials{AccessKeyID: found["aws_access_key_id"], SecretAccessKey: found["aws_secret_access_key"], SessionToken: found["aws_session_token"], Source: "lockstep"}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		where := "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file by --s3-credentials-file"
		if file != "" {
			where = file + " has no aws_access_key_id and aws_secret_access_key for its profile (AWS_PROFILE, or default)"
		}
		return c, errors.New("no credentials for the S3-compatible storage: " + where)
	}
	return c, nil
}

// maxSmall is the size in bytes of the largest file of credentials or certificates that is read.
const maxSmall = 1 << 20

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err == nil && len(b) > maxSmall {
		err = fmt.Errorf("%s has more than %d bytes", path, maxSmall)
	}
	return b, err
}

// readCredentials reads the section of a profile in a file such as ~/.aws/credentials.
func readCredentials(path, profile string) (map[string]string, error) {
	b, err := readSmall(path)
	if err != nil {
		return nil, fmt.Errorf("the file of credentials: %w", err)
	}
	found, inside := map[string]string{}, false
	lines := bufio.NewScanner(strings.NewReader(string(b)))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if section, is := strings.CutPrefix(line, "["); is {
			section, _ = strings.CutSuffix(section, "]")
			inside = strings.TrimSpace(section) == profile
			continue
		}
		if name, value, is := strings.Cut(line, "="); is && inside && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			found[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
		}
	}
	return found, lines.Err()
}
