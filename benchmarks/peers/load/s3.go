package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	makers    = 16  // callers that have keys of their own; more of them share these
	filled    = 125 // keys that one step of "fill" makes
	listed    = "1000"
	s3Longest = 5 * time.Minute // of a request: large bodies take long on a busy machine
)

func init() { connects["s3"] = connectS3 }

// A server that speaks S3, and the key with which requests are signed. Callers share connections.
type s3 struct {
	url, id, secret string
	bucket, run     string
	keys            int // in the bucket, for "list-all"
	client          *http.Client
	won             sync.Map // keys that a caller made
}

func connectS3(given []string) (peer, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	client := &http.Client{Transport: transport, Timeout: s3Longest}
	return &s3{url: given[0], id: given[1], secret: given[2], client: client}, nil
}

func (s *s3) aim() error              { return nil }
func (s *s3) spread()                 {}
func (s *s3) leader() (string, error) { return "", fmt.Errorf("nobody leads") }

// prepare makes the bucket, unless it is one with so many keys, and says below which prefix the steps
// that follow make keys.
func (s *s3) prepare(ctx context.Context, given options) error {
	s.run, s.bucket = given["run"], "bench"
	if given["bucket"] != "" {
		s.bucket, s.keys = given["bucket"], given.number("keys")
		return nil
	}
	status, _, err := s.ask(ctx, "PUT", "", "", nil, nil)
	if err == nil && status != http.StatusOK && status != http.StatusConflict {
		err = fmt.Errorf("the bucket was not made: %d", status)
	}
	return err
}

func (s *s3) step(_ context.Context, command string, client, number int, value []byte) error {
	ctx := context.Background() // the client has a timeout of its own
	own := s.run + "/" + strconv.Itoa(client%makers)
	switch command {
	case "put": // each time another key
		return s.expect(ctx, "PUT", own+"/"+strconv.Itoa(number), "", value)
	case "replace": // each time the same
		return s.expect(ctx, "PUT", own+"/0", "", value)
	case "get":
		return s.whole(ctx, own+"/0", len(value))
	case "head":
		return s.expect(ctx, "HEAD", own+"/0", "", nil)
	case "fill":
		for each := range filled {
			name := fmt.Sprintf("%s/%06d", s.run, client*filled+each)
			if err := s.expect(ctx, "PUT", name, "", nil); err != nil {
				return err
			}
		}
		return nil
	case "list":
		return s.list(ctx, s.run+"/")
	case "list-all":
		return s.listAll(ctx)
	case "race": // all callers at one key
		return s.race(ctx, s.run+"/"+strconv.Itoa(number), value)
	default:
		return fmt.Errorf("no command %s", command)
	}
}

func (s *s3) expect(ctx context.Context, method, key, query string, body []byte) error {
	status, _, err := s.ask(ctx, method, key, query, body, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s %s: %d", method, key, status)
	}
	return err
}

func (s *s3) whole(ctx context.Context, key string, length int) error {
	status, answer, err := s.ask(ctx, "GET", key, "", nil, nil)
	if err == nil && (status != http.StatusOK || answer.length != int64(length)) {
		err = fmt.Errorf("GET %s: %d, %d bytes", key, status, answer.length)
	}
	return err
}

func (s *s3) list(ctx context.Context, prefix string) error {
	query := "list-type=2&max-keys=" + listed + "&prefix=" + strings.ReplaceAll(prefix, "/", "%2F")
	status, answer, err := s.ask(ctx, "GET", "", query, nil, nil)
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("list: %d, %v", status, err)
	}
	var page struct{ KeyCount string }
	if err := xml.Unmarshal(answer.text, &page); err != nil || page.KeyCount != listed {
		return fmt.Errorf("%s keys were listed, %v", page.KeyCount, err)
	}
	return nil
}

// listAll goes through all keys of the bucket, page by page.
func (s *s3) listAll(ctx context.Context) error {
	for count, after := 0, ""; ; {
		query := "list-type=2&max-keys=" + listed + "&start-after=" + url.QueryEscape(after)
		status, answer, err := s.ask(ctx, "GET", "", query, nil, nil)
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("list: %d, %v", status, err)
		}
		var page struct {
			IsTruncated bool
			Contents    []struct{ Key string }
		}
		if err := xml.Unmarshal(answer.text, &page); err != nil {
			return err
		}
		count += len(page.Contents)
		if !page.IsTruncated {
			if count != s.keys {
				return fmt.Errorf("%d of %d keys were listed", count, s.keys)
			}
			return nil
		}
		after = page.Contents[len(page.Contents)-1].Key
	}
}

func (s *s3) race(ctx context.Context, key string, value []byte) error {
	status, _, err := s.ask(ctx, "PUT", key, "", value, map[string]string{"If-None-Match": "*"})
	switch {
	case err != nil:
		return err
	case status == http.StatusOK:
		if _, twice := s.won.LoadOrStore(key, true); twice {
			return fmt.Errorf("two callers were told that they made %s", key)
		}
	case status != http.StatusPreconditionFailed && status != http.StatusConflict:
		return fmt.Errorf("PUT if there is none: %d", status)
	}
	return nil
}

// What came: the text of a list, or how many bytes it had.
type answer struct {
	text   []byte
	length int64
}

// ask sends a request whose body is not signed, with S3's signature of version 4.
func (s *s3) ask(
	ctx context.Context, method, key, query string, body []byte, headers map[string]string,
) (int, answer, error) {
	path := "/" + s.bucket
	if key != "" {
		path += "/" + key
	}
	target := s.url + path
	if query != "" {
		target += "?" + query
	}
	request, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return 0, answer{}, err
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	s.sign(request, path, query, time.Now().UTC())
	came, err := s.client.Do(request)
	if err != nil {
		return 0, answer{}, err
	}
	defer came.Body.Close()
	if query != "" {
		text, err := io.ReadAll(came.Body)
		return came.StatusCode, answer{text, int64(len(text))}, err
	}
	length, err := io.Copy(io.Discard, came.Body)
	return came.StatusCode, answer{nil, length}, err
}

func (s *s3) sign(request *http.Request, path, query string, now time.Time) {
	const unsigned, names = "UNSIGNED-PAYLOAD", "host;x-amz-content-sha256;x-amz-date"
	date, day := now.Format("20060102T150405Z"), now.Format("20060102")
	scope := day + "/us-east-1/s3/aws4_request"
	request.Header.Set("x-amz-content-sha256", unsigned)
	request.Header.Set("x-amz-date", date)
	signed := strings.Join([]string{
		request.Method, path, query, "host:" + request.URL.Host, "x-amz-content-sha256:" + unsigned,
		"x-amz-date:" + date, "", names, unsigned,
	}, "\n")
	digest := sha256.Sum256([]byte(signed))
	key := []byte("AWS4" + s.secret)
	for _, part := range strings.Split(scope, "/") {
		key = sum(key, part)
	}
	text := strings.Join([]string{"AWS4-HMAC-SHA256", date, scope, hex.EncodeToString(digest[:])}, "\n")
	request.Header.Set("Authorization", fmt.Sprintf(
		"AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s",
		s.id, scope, names, hex.EncodeToString(sum(key, text)),
	))
}

func sum(key []byte, text string) []byte {
	made := hmac.New(sha256.New, key)
	made.Write([]byte(text))
	return made.Sum(nil)
}
