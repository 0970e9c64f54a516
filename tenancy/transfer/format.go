package transfer

import (
	"bufio"
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"stoa/agentsvc"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// A file has a JSON value a line, in UTF-8: the [header]; for each table a [tableLine] and one array a row, with the values
// in the order of its columns; the [endLine]. Texts are strings, numbers are integers, bytes are base64. The app's id is in
// the header alone: rows cannot name another app.

// formatVersion is the version of the format. A reader refuses a later one.
const formatVersion = 1

// MaxLine bounds one line of a file, in bytes: a document of 20 MiB in base64 with space for the row around it.
const MaxLine = 40 << 20

// MinPassphrase is the shortest passphrase, in bytes. It protects the secrets of an app in a file that may be copied.
const MinPassphrase = 12

// maxPassphrase bounds a passphrase, in bytes.
const maxPassphrase = 1024

// header is the first line.
type header struct {
	Format     int    `json:"stoa_app"`
	Schema     uint   `json:"schema"` // version of the schema, the number of the last migration
	AppID      db.ID  `json:"app_id"`
	App        string `json:"app"`
	Issuer     string `json:"issuer"` // the name of the exporting installation's issuer of tokens
	ExportedAt string `json:"exported_at"`
	Salt       []byte `json:"salt"`
	// Check distinguishes a wrong passphrase from a changed file.
	Check []byte `json:"check"`
}

// tableLine begins a table.
type tableLine struct {
	Table   string   `json:"table"`
	Columns []string `json:"columns"`
}

// endLine is the last line.
type endLine struct {
	End *ending `json:"end"`
}

// anyLine is a line after the first that is no row.
type anyLine struct {
	tableLine
	endLine
}

type ending struct {
	Rows int64 `json:"rows"`
	// MAC is the HMAC-SHA-256 of all lines before, in hex, by a key that the passphrase gives.
	MAC string `json:"mac"`
}

// fileKeys are the keys that a passphrase gives for one file.
type fileKeys struct {
	// ring wraps the data keys in the file.
	ring  *keyring.Keyring
	mac   []byte
	check []byte
}

// argonMemory is the memory of Argon2id in KiB. Only tests, which derive keys often, use less.
var argonMemory uint32 = 64 << 10

// deriveKeys derives the keys of a file by Argon2id with the second recommendation of RFC 9106 (64 MiB, 3 passes, 4
// lanes). The parameters belong to the format, so that no file decides what its import costs.
func deriveKeys(passphrase string, salt []byte) (*fileKeys, error) {
	if len(passphrase) < MinPassphrase || len(passphrase) > maxPassphrase {
		return nil, agentsvc.NewInvalidError("passphrase", "must have %d to %d bytes", MinPassphrase, maxPassphrase)
	}
	secret := argon2.IDKey([]byte(passphrase), salt, 3, argonMemory, 4, 32)
	k := &fileKeys{}
	var master []byte
	for purpose, to := range map[string]*[]byte{"keys": &master, "mac": &k.mac, "check": &k.check} {
		var err error
		if *to, err = hkdf.Key(sha256.New, secret, nil, "stoa app export: "+purpose, 32); err != nil {
			return nil, err
		}
	}
	k.check = k.check[:16]
	var err error
	k.ring, err = keyring.New(master)
	return k, err
}

const saltSize = 16

func newSalt() []byte {
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails
	return salt
}

// fileWriter writes the lines of a file.
type fileWriter struct {
	out  *bufio.Writer
	mac  hash.Hash
	line []byte
	rows int64
}

func newFileWriter(out io.Writer, keys *fileKeys) *fileWriter {
	return &fileWriter{out: bufio.NewWriterSize(out, 64<<10), mac: hmac.New(sha256.New, keys.mac)}
}

// writeLine writes a value as a line.
func (w *fileWriter) writeLine(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.write(append(line, '\n'))
}

func (w *fileWriter) write(line []byte) error {
	w.mac.Write(line) // never fails
	_, err := w.out.Write(line)
	return err
}

// errNotUTF8 reports a text that JSON cannot hold.
var errNotUTF8 = errors.New("the text is not valid UTF-8")

// writeRow writes a row of values: string, int64, bool, []byte or nil.
func (w *fileWriter) writeRow(values []any) error {
	w.line = append(w.line[:0], '[')
	for i, v := range values {
		if i > 0 {
			w.line = append(w.line, ',')
		}
		if text, ok := v.(string); ok && !utf8.ValidString(text) {
			return errNotUTF8
		}
		encoded, err := json.Marshal(v)
		if err != nil {
			return err
		}
		w.line = append(w.line, encoded...)
	}
	w.line = append(w.line, ']', '\n')
	if len(w.line) > MaxLine {
		return errors.New("the row is larger than the line of a file may be")
	}
	w.rows++
	return w.write(w.line)
}

// end writes the last line and returns the digest in it.
func (w *fileWriter) end() (string, error) {
	e := ending{w.rows, hex.EncodeToString(w.mac.Sum(nil))}
	line, err := json.Marshal(endLine{&e})
	if err != nil {
		return "", err
	}
	if _, err := w.out.Write(append(line, '\n')); err != nil {
		return "", err
	}
	return e.MAC, w.out.Flush()
}

// newFileError returns an error about a file, whose line is counted from 1.
func newFileError(line int64, format string, args ...any) error {
	return agentsvc.NewInvalidError("file", "line %d: "+format, append([]any{line}, args...)...)
}

// fileReader reads the lines of a file. Its errors are for the caller, except those of the file system.
type fileReader struct {
	in      *bufio.Reader
	line    int64 // number of the last line that was read
	content []byte
}

func newFileReader(in io.Reader) *fileReader {
	return &fileReader{in: bufio.NewReaderSize(in, 64<<10)}
}

// next reads a line into r.content, with its end. A line that is too long or has no end is an error.
func (r *fileReader) next() error {
	r.line++
	r.content = r.content[:0]
	for {
		piece, err := r.in.ReadSlice('\n')
		if r.content = append(r.content, piece...); len(r.content) > MaxLine {
			return newFileError(r.line, "is longer than %d bytes", MaxLine)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, io.EOF):
			return newFileError(r.line, "the file ends here and is not complete: export the app again")
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// maxObjectLine bounds a line that is no row, in bytes.
const maxObjectLine = 64 << 10

// decode decodes the line as an object without unknown members.
func (r *fileReader) decode(v any) error {
	if len(r.content) > maxObjectLine {
		return newFileError(r.line, "is longer than %d bytes and no row", maxObjectLine)
	}
	d := json.NewDecoder(bytes.NewReader(r.content))
	d.DisallowUnknownFields()
	if d.Decode(v) != nil || d.More() {
		return newFileError(r.line, "is not a line of an exported app")
	}
	return nil
}

// atEnd reports whether nothing follows the line.
func (r *fileReader) atEnd() bool {
	_, err := r.in.ReadByte()
	return errors.Is(err, io.EOF)
}

// isRow reports whether the line is a row.
func (r *fileReader) isRow() bool { return len(r.content) > 0 && r.content[0] == '[' }

// row decodes the line as a row with the columns of t into values, whose capacity is used again.
func (r *fileReader) row(t *table, values []any) ([]any, error) {
	// Counted first, since a decoded value takes more memory than its text.
	if n := countValues(r.content); n != len(t.columns) {
		return nil, newFileError(r.line, "has %d values, the table %s has %d columns", n, t.name, len(t.columns))
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(r.content, &raw); err != nil || len(raw) != len(t.columns) {
		return nil, newFileError(r.line, "is not a row")
	}
	values = values[:0]
	for i, c := range t.columns {
		v, err := decodeValue(c.kind, raw[i])
		if err != nil || v == nil && !c.nullable {
			return nil, newFileError(r.line, "the value of column %s of table %s has not the type %s", c.name, t.name, c.kind)
		}
		values = append(values, v)
	}
	return values, nil
}

// countValues returns how many values the array in a line has. The result is arbitrary if the line is no array of values
// that are strings, numbers, booleans and null.
func countValues(line []byte) int {
	n, inString, escaped := 1, false, false
	for _, c := range line {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = c == '\\', c != '"'
		case c == '"':
			inString = true
		case c == ',':
			n++
		}
	}
	return n
}

// decodeValue decodes a value of a kind.
func decodeValue(kind string, raw json.RawMessage) (any, error) {
	if string(raw) == "null" {
		return nil, nil //nolint:nilnil // SQL's NULL
	}
	switch kind {
	case kindText:
		var v string
		err := json.Unmarshal(raw, &v)
		return v, err
	case kindNumber:
		var v int64
		err := json.Unmarshal(raw, &v)
		return v, err
	case kindBoolean:
		var v bool
		err := json.Unmarshal(raw, &v)
		return v, err
	}
	var v string
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(v)
}
