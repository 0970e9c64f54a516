// Package source is the interface to where documents come from. A [Source] lists the documents of a store; the pass that
// indexes the store compares the listing with its rows, opens what is new, and removes what is gone. The folders below
// hold one kind each: directory (files), sqltable (rows of PostgreSQL, MySQL and SQLite), api (an address that answers
// with JSON). Uploads have no source. Package mcpparser reads documents by tools of MCP servers.
//
// Three rules keep a store from losing documents that still exist:
//
//   - A listing that could not see everything ends with an error. A folder that cannot be read, a page that does not
//     arrive, or a table that is gone is never an empty listing.
//   - A document that exists but cannot be read is listed, and its Open fails. It does not end the listing.
//   - A document whose id cannot be used (a file name that is no UTF-8 or has a line break, rows without an id) is listed
//     under an id that names the problem.
//
// All errors are [*Error], whose text is for the one who configured the source: it has no password, no content, nothing
// that a server answered.
package source

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
)

// Bounds of all sources.
const (
	// MaxIDBytes bounds the id of a document, in bytes.
	MaxIDBytes = 512
	// MaxDocuments bounds a listing, so that a wrong pattern or address ends. The limits of an app are lower.
	MaxDocuments = 100_000
)

// Item is a document that a source lists. Its content is read by Open, at most once, and only if the version is new.
type Item struct {
	// ID is unique in the listing, printable (see [IsPrintable]) and at most MaxIDBytes long.
	ID string
	// Version changes when the content, the title, the metadata or the access does. It is never empty.
	Version   string
	Title     string // "" = what is read from the content
	MediaType string // "" = unknown
	URL       string
	Bytes     int64 // of the content, as far as the source knows; 0 = unknown
	Metadata  map[string]string
	Access    document.Access
	// Open returns the content. It may be called while the listing goes on and after its end, at most once, not after Close,
	// and by several goroutines for different items. It may return a newer content than Version stands for.
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// Source lists documents. Each kind is safe for one listing at a time. A source is kept between listings, since it
// remembers what makes the next one cheaper. A source that is an [io.Closer] is closed after its last use, see [Close].
type Source interface {
	// List yields the documents in the order of their ids where the source has one. An error is the last value; then the
	// listing is not complete and nothing may be deleted for it.
	List(ctx context.Context) iter.Seq2[Item, error]
	// Wait blocks until something may have changed (file watching) or ctx ends; sources without it return
	// [errors.ErrUnsupported].
	Wait(ctx context.Context) error
}

// Close releases what a source holds, e.g. connections and watches of folders.
func Close(s Source) error {
	if c, ok := s.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Error is why a source or one of its documents cannot be read.
type Error struct {
	// Message says what is wrong, where, and what to do about it.
	Message string
	// Permanent reports that another attempt fails in the same way until someone changes something.
	Permanent bool
	// RetryAfter is how long the other side asks to be left alone; 0 = it does not say.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Errorf returns an error that another attempt may cure.
func Errorf(format string, args ...any) *Error { return &Error{Message: fmt.Sprintf(format, args...)} }

// PermanentErrorf returns an error that only a change of the document or of the configuration cures.
func PermanentErrorf(format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Permanent: true}
}

// DescribeRefusal returns the error for a refusal of memory by package capacity, with what to do about what takes more than an app may
// have; nil for other errors.
func DescribeRefusal(err error, advice string) *Error {
	if _, refused := errors.AsType[*agentsvc.Error](err); !refused {
		return nil
	}
	if errors.Is(err, agentsvc.CodeTooLarge) {
		return PermanentErrorf("it takes more memory than an app may have; %s", advice)
	}
	return Errorf("there is no memory for it at present")
}

// IsPermanent reports whether reading again fails in the same way until someone changes something.
func IsPermanent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Permanent
}

// NewFailedItem returns a document that exists and cannot be read for the reason err. Its version changes with the
// reason.
func NewFailedItem(id string, err *Error) Item {
	return Item{
		ID: ShortenID(id), Version: Version("failed", err.Message),
		Open: func(context.Context) (io.ReadCloser, error) { return nil, err },
	}
}

// IsPrintable reports whether an id or a name is valid UTF-8 without characters that change how the text around it is
// shown: controls, line breaks, and marks of the direction of writing.
func IsPrintable(id string) bool {
	return utf8.ValidString(id) && strings.IndexFunc(id, isUnprintable) < 0
}

func isUnprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// ShortenID returns an id that is printable and at most MaxIDBytes long. What is not keeps the beginning of id and gets a
// hash of all of it, so that different ids stay different.
func ShortenID(id string) string {
	clean := strings.Map(func(r rune) rune {
		if isUnprintable(r) {
			return '\ufffd'
		}
		return r
	}, strings.ToValidUTF8(id, "\ufffd"))
	if clean == id && len(id) <= MaxIDBytes {
		return id
	}
	const hashBytes = 8
	sum := sha256.Sum256([]byte(id))
	mark := "~" + hex.EncodeToString(sum[:hashBytes])
	clean = clean[:min(len(clean), MaxIDBytes-len(mark))]
	return strings.ToValidUTF8(clean, "") + mark
}

// Version returns a text that differs for different parts. It is a hash, since versions are stored and parts may be long.
func Version(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		_, _ = h.Write(length[:])
		_, _ = io.WriteString(h, part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// AccessVersion returns the part of a version that stands for an access.
func AccessVersion(a document.Access) string {
	return strings.Join(a.Subjects, "\x00") + "\x01" + strings.Join(a.Roles, "\x00")
}

// NewAccess returns an access with sorted names without duplicates or empty names.
func NewAccess(subjects, roles []string) document.Access {
	return document.Access{Subjects: cleanNames(subjects), Roles: cleanNames(roles)}
}

// cleanNames returns names sorted, trimmed, and without empty or repeated ones; nil if none is left.
func cleanNames(names []string) []string {
	var out []string
	for _, name := range names {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
