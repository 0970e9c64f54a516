// Package extract reads the text of files: bytes, a name and a declared media type become a [document.Content] whose
// sections know their place (page, headings, sheet, line). docs/documents-formats.md lists the formats.
//
// Files are hostile input: parsers of PDF and Office formats have loops, panics and unbounded allocations. Therefore
// [Reader.Read] starts a helper, this executable again, whose main calls [RunHelper]. The helper gets the file on
// standard input, writes sections as lines of JSON to standard output, and ends after one file. It runs in the sandbox
// of [sandbox.Host]: without network, without files of the host, and as another user if the server is root and the
// executable is accessible to that user. The helper bounds its own memory before it reads the first byte. A panic, a
// loop, a bomb or a kill costs one file an error and the server nothing.
//
// Where the host has no sandbox (other systems than Linux, or a kernel without Landlock) the helper is a child process
// without confinement: time, output, text, pages and ratios of compression are bounded as everywhere, its memory only by
// the helper's own watch of the heap.
//
// Plain text of up to 1 MiB is read in the server: no parser works on it.
//
// A newcomer reads on in reader.go (the server's side), helper.go (the helper's), detect.go (which format a file has)
// and builder.go (how readers of formats write sections).
package extract

import (
	"errors"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
)

// Version names the behaviour of this package. It is part of a document's recipe: a change of what is read from the
// same bytes must change it, so that documents are read again.
const Version = "1"

// MaxFileBytes is the size of the largest file that is read.
const MaxFileBytes = 20 << 20

// limits bound what is read from one file. Tests lower them.
type limits struct {
	text     int   // bytes of text of all sections together
	sections int   // number of sections
	pages    int   // pages of a PDF or slides of a presentation
	entries  int   // entries of an archive
	unpacked int64 // bytes of an archive's entries when they are decompressed, together
	ratio    int64 // decompressed bytes for each compressed byte of an entry that is larger than freeRatioBytes
	depth    int   // nested elements or arrays
}

// defaultLimits are the limits of the helper.
var defaultLimits = limits{text: 16 << 20, sections: 200_000, pages: 10_000, entries: 10_000, unpacked: 256 << 20, ratio: 200, depth: 1_000}

// readContent reads data in this process. It is what the helper executes; a panic of a parser becomes an error, but
// loops and memory are bounded by the process alone.
func readContent(name, mediaType string, data []byte, l limits) (content document.Content, err error) {
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case *agentsvc.Error: // of builder, which has no error results
			err = problem
		default:
			err = newDamaged("its content is not valid")
		}
		if err != nil {
			content = document.Content{}
		}
	}()
	if len(data) > MaxFileBytes {
		return content, newFileTooLarge()
	}
	f := newFile(name, mediaType, data)
	format, err := f.detect()
	if err != nil {
		return content, err
	}
	b := &builder{limits: l}
	b.content.MediaType = format.mediaType
	if err := format.read(b, f); err != nil {
		return content, asProblem(err)
	}
	b.flush()
	if len(b.content.Sections) == 0 {
		return content, newProblem(Empty, "the file has no text")
	}
	b.content.Title = cleanLine(b.content.Title, maxTitle)
	return b.content, nil
}

// asProblem returns err if it is a problem of this package, else the one of a damaged file: the text of a library's
// error is not for uploaders.
func asProblem(err error) error {
	var known *agentsvc.Error
	if errors.As(err, &known) {
		return known
	}
	return newDamaged("its content is not valid")
}
