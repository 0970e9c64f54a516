package extract

import (
	"bytes"
	"mime"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/gabriel-vasile/mimetype"
)

// file is a file to read.
type file struct {
	name      string
	extension string // of name, in lower case, with its dot
	mediaType string // as declared, without parameters
	charset   string // as declared
	data      []byte
}

// format is how a file is read.
type format struct {
	mediaType string // of the content
	read      func(*builder, file) error
}

// Media types of the formats.
const (
	typePDF      = "application/pdf"
	typeDOCX     = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	typePPTX     = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
	typeXLSX     = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	typeODT      = "application/vnd.oasis.opendocument.text"
	typeHTML     = "text/html"
	typeMarkdown = "text/markdown"
	typeCSV      = "text/csv"
	typeTSV      = "text/tab-separated-values"
	typeJSON     = "application/json"
	typeText     = "text/plain"
)

// textFormats are the formats of files that are text, by media type.
var textFormats = map[string]format{
	typeHTML:                {typeHTML, readHTML},
	"application/xhtml+xml": {typeHTML, readHTML},
	typeMarkdown:            {typeMarkdown, readMarkdown},
	"text/x-markdown":       {typeMarkdown, readMarkdown},
	typeCSV:                 {typeCSV, readCSV},
	typeTSV:                 {typeTSV, readCSV},
	typeJSON:                {typeJSON, readJSON},
	typeText:                {typeText, readText},
}

// textExtensions are the media types of files that are text, by extension. Text of any other extension is plain text,
// as source code is.
var textExtensions = map[string]string{
	".html": typeHTML, ".htm": typeHTML, ".xhtml": typeHTML,
	".md": typeMarkdown, ".markdown": typeMarkdown, ".mdx": typeMarkdown,
	".csv": typeCSV, ".tsv": typeTSV,
	".json": typeJSON,
	".txt":  typeText, ".text": typeText, ".log": typeText, ".jsonl": typeText, ".ndjson": typeText,
}

// binaryExtensions are the extensions of the formats that are not text, with the name of the format.
var binaryExtensions = map[string]string{".pdf": "PDF", ".docx": "DOCX", ".pptx": "PPTX", ".xlsx": "XLSX", ".odt": "ODT"}

// Signatures of formats, at the beginning of a file.
var (
	pdfSignature = []byte("%PDF-")
	zipSignature = []byte("PK\x03\x04")
	oleSignature = []byte("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1") // Office before 2007, and encrypted Office files of today
)

// pdfHeaderBytes is how far from its beginning a PDF may have its signature.
const pdfHeaderBytes = 1024

// newFile returns a file. mediaType may be empty or wrong: it decides only between formats that are text.
func newFile(name, mediaType string, data []byte) file {
	f := file{name: name, extension: strings.ToLower(path.Ext(name)), data: data}
	if declared, parameters, err := mime.ParseMediaType(mediaType); err == nil {
		f.mediaType, f.charset = declared, parameters["charset"]
	}
	return f
}

// detect returns the format of f: by the content if it has a signature, else, for text, by the extension, the declared
// media type and the content, in this order.
func (f file) detect() (format, error) {
	head := f.data[:min(len(f.data), pdfHeaderBytes)]
	binary := binaryExtensions[f.extension]
	switch {
	case len(bytes.TrimSpace(f.data)) == 0:
		return format{}, newProblem(Empty, "the file is empty")
	case bytes.HasPrefix(head, pdfSignature), binary == "PDF" && bytes.Contains(head, pdfSignature):
		return format{typePDF, readPDF}, nil
	case bytes.HasPrefix(head, zipSignature):
		return f.detectArchive()
	case bytes.HasPrefix(head, oleSignature):
		return format{}, f.describeOLE()
	case f.isPlainText():
		return textFormats[typeText], nil
	}
	found := mimetype.Detect(f.data)
	if !isText(found) {
		if binary != "" {
			return format{}, newDamaged("its name ends in " + f.extension + ", its content is no " + binary)
		}
		return format{}, newProblem(Unsupported, "files of the type %s are not read: upload text, Markdown, HTML, PDF, DOCX, PPTX, XLSX, ODT, CSV or JSON", found.String())
	}
	if binary != "" {
		return format{}, newDamaged("its name ends in " + f.extension + ", its content is text")
	}
	return f.detectText(found), nil
}

// isPlainText reports whether f is plain text by its extension or its declared media type, and in fact: UTF-8 without control
// characters. No format is then guessed from its first letters.
func (f file) isPlainText() bool {
	declared, ok := textExtensions[f.extension]
	if !ok {
		declared = f.mediaType
	}
	return declared == typeText && binaryExtensions[f.extension] == "" && !bytes.HasPrefix(f.data, pdfSignature) && utf8.Valid(f.data) &&
		!bytes.ContainsFunc(f.data, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != '\r' && r != '\f' })
}

// isText reports whether a detected type is a kind of text that can be read as it is.
func isText(found *mimetype.MIME) bool {
	if found.Is("text/rtf") {
		return false
	}
	for ; found != nil; found = found.Parent() {
		if found.Is(typeText) {
			return true
		}
	}
	return false
}

// detectText returns the format of a file that is text.
func (f file) detectText(found *mimetype.MIME) format {
	if mediaType, ok := textExtensions[f.extension]; ok {
		return textFormats[mediaType]
	}
	if format, ok := textFormats[f.mediaType]; ok {
		return format
	}
	if f.extension == "" {
		base, _, _ := strings.Cut(found.String(), ";")
		if format, ok := textFormats[base]; ok {
			return format
		}
	}
	return textFormats[typeText]
}

// detectArchive returns the format of a ZIP archive, by the entries that each format must have.
func (f file) detectArchive() (format, error) {
	a, err := openArchive(f.data, defaultLimits)
	if err != nil {
		return format{}, err
	}
	mediaType, err := a.readMediaType()
	switch {
	case err != nil:
		return format{}, err
	case a.has("word/document.xml"):
		return format{typeDOCX, readDOCX}, nil
	case a.has("ppt/presentation.xml"):
		return format{typePPTX, readPPTX}, nil
	case a.has("xl/workbook.xml"):
		return format{typeXLSX, readXLSX}, nil
	case mediaType == typeODT:
		return format{typeODT, readODT}, nil
	case binaryExtensions[f.extension] != "":
		return format{}, newDamaged("it lacks the main part of a " + binaryExtensions[f.extension])
	}
	return format{}, newProblem(Unsupported, "archives are not read: upload the files that are in it")
}

// describeOLE returns why a file in the format of Office before 2007 is not read. Office encrypts a file of today by
// putting it into such a one, in a stream with a fixed name in UTF-16.
func (f file) describeOLE() error {
	if bytes.Contains(f.data, encodeUTF16("EncryptedPackage")) {
		return newProblem(Encrypted, "the file is encrypted: upload a copy without a password")
	}
	return newProblem(Unsupported, "files of Office before 2007 are not read: save it as DOCX, XLSX or PPTX")
}

// encodeUTF16 returns ASCII text in UTF-16, little-endian.
func encodeUTF16(text string) []byte {
	wide := make([]byte, 0, 2*len(text))
	for _, c := range []byte(text) {
		wide = append(wide, c, 0)
	}
	return wide
}
