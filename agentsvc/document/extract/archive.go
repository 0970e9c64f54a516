package extract

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"path"
	"strings"

	"golang.org/x/net/html/charset"
)

// Bounds of archives.
const (
	// freeRatioBytes is the size up to which the ratio of compression of an entry is not checked: small entries of
	// repeated text have any ratio.
	freeRatioBytes = 1 << 20
	// encryptedFlag is the bit of an entry's flags that says that it is encrypted.
	encryptedFlag = 1
	// maxMediaType bounds the entry mimetype of an OpenDocument, in bytes.
	maxMediaType = 200
)

// archive is a ZIP archive whose entries are read within limits.
type archive struct {
	limits  limits
	entries map[string]*zip.File
	left    int64 // bytes that may still be decompressed
}

// openArchive reads the directory of an archive and checks what it declares.
func openArchive(data []byte, l limits) (*archive, error) {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, newDamaged("its archive is incomplete")
	}
	if len(z.File) > l.entries {
		return nil, newProblem(TooLarge, "the file consists of more than %d parts", l.entries)
	}
	a := &archive{limits: l, entries: make(map[string]*zip.File, len(z.File)), left: l.unpacked}
	var declared uint64
	for _, entry := range z.File {
		if entry.Flags&encryptedFlag != 0 {
			return nil, newProblem(Encrypted, "the file is encrypted: upload a copy without a password")
		}
		if declared += entry.UncompressedSize64; declared > uint64(l.unpacked) || entry.UncompressedSize64 > uint64(l.unpacked) {
			return nil, a.newTooLarge()
		}
		if isBomb(entry, l) {
			return nil, newProblem(TooLarge, "a part of the file is compressed to less than 1/%d of its size: save it again with the program that made it", l.ratio)
		}
		if name := path.Clean(strings.ReplaceAll(entry.Name, `\`, "/")); a.entries[name] == nil {
			a.entries[name] = entry
		}
	}
	return a, nil
}

// isBomb reports whether an entry declares a ratio of compression that only constructed files have. An entry that
// declares less than it has is refused by package zip while it is read.
func isBomb(entry *zip.File, l limits) bool {
	return entry.UncompressedSize64 > freeRatioBytes && entry.UncompressedSize64/uint64(l.ratio) > entry.CompressedSize64
}

// newTooLarge returns the error of an archive that exceeds its limit when it is decompressed.
func (a *archive) newTooLarge() error {
	return newProblem(TooLarge, "the file has more than %d MiB when it is decompressed: split it", a.limits.unpacked>>20)
}

// has reports whether the archive has an entry.
func (a *archive) has(name string) bool { return a.entries[name] != nil }

// open returns the content of an entry, whose reads count against the limit of the archive.
func (a *archive) open(name string) (io.ReadCloser, error) {
	entry := a.entries[name]
	if entry == nil {
		return nil, newDamaged("it lacks a part")
	}
	r, err := entry.Open()
	if err != nil {
		return nil, newDamaged("a part of it cannot be decompressed")
	}
	return &entryReader{ReadCloser: r, archive: a}, nil
}

// entryReader counts what is decompressed.
type entryReader struct {
	io.ReadCloser
	archive *archive
}

// Read reads from the entry until the limit of the archive is exceeded.
func (r *entryReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.archive.left -= int64(n); r.archive.left < 0 {
		return 0, r.archive.newTooLarge()
	}
	return n, err
}

// readMediaType returns the content of the entry in which an OpenDocument names its type, "" if there is none.
func (a *archive) readMediaType() (string, error) {
	if !a.has("mimetype") {
		return "", nil
	}
	r, err := a.open("mimetype")
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(io.LimitReader(r, maxMediaType))
	if err != nil {
		return "", newDamaged("a part of it cannot be decompressed")
	}
	return strings.TrimSpace(string(text)), nil
}

// xmlHandler gets the elements and texts of an XML part in their order. Namespaces are left out: within one part no two
// elements that are used have the same local name, and the strict and the transitional form of Office files differ in
// them.
type xmlHandler interface {
	startElement(name string, attributes attributes)
	endElement(name string)
	addText(text string)
}

// attributes are those of an element.
type attributes []xml.Attr

// get returns the value of the attribute with a local name, "" if there is none.
func (a attributes) get(name string) string {
	for _, attribute := range a {
		if attribute.Name.Local == name {
			return attribute.Value
		}
	}
	return ""
}

// readXML passes an entry to h. Entities that a part declares itself are not known to package xml, so that they cannot
// multiply its text.
func (a *archive) readXML(name string, h xmlHandler) error {
	r, err := a.open(name)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	d := xml.NewDecoder(r)
	d.CharsetReader = charset.NewReaderLabel
	for depth := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return asProblem(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if depth++; depth > a.limits.depth {
				return newProblem(TooComplex, "the file has more than %d elements inside each other", a.limits.depth)
			}
			h.startElement(token.Name.Local, token.Attr)
		case xml.EndElement:
			depth--
			h.endElement(token.Name.Local)
		case xml.CharData:
			h.addText(string(token))
		}
	}
}

// readOptionalXML passes an entry to h if the archive has it.
func (a *archive) readOptionalXML(name string, h xmlHandler) error {
	if !a.has(name) {
		return nil
	}
	return a.readXML(name, h)
}

// titleReader finds the title in the properties of a document: the element title of Dublin Core.
type titleReader struct {
	open  bool
	title strings.Builder
}

func (t *titleReader) startElement(name string, _ attributes) { t.open = name == "title" }
func (t *titleReader) endElement(string)                      { t.open = false }
func (t *titleReader) addText(text string) {
	if t.open && t.title.Len() < maxTitle {
		t.title.WriteString(text)
	}
}

// readTitle takes the title from an entry with properties. A missing or damaged entry has none.
func (a *archive) readTitle(b *builder, name string) {
	var t titleReader
	if a.readOptionalXML(name, &t) == nil {
		b.setTitle(t.title.String())
	}
}

// relations are the targets of a part's relationships, by id and by kind (the last word of their type).
type relations struct {
	folder       string // of the part
	byID, byKind map[string]string
}

func (r *relations) startElement(name string, attributes attributes) {
	if name != "Relationship" || attributes.get("TargetMode") == "External" {
		return
	}
	target := attributes.get("Target")
	if strings.HasPrefix(target, "/") {
		target = strings.TrimPrefix(target, "/")
	} else {
		target = path.Join(r.folder, target)
	}
	r.byID[attributes.get("Id")] = target
	r.byKind[path.Base(attributes.get("Type"))] = target
}

func (r *relations) endElement(string) {}
func (r *relations) addText(string)    {}

// readRelations returns the relationships of a part of an Office file.
func (a *archive) readRelations(part string) (*relations, error) {
	r := &relations{folder: path.Dir(part), byID: map[string]string{}, byKind: map[string]string{}}
	return r, a.readOptionalXML(path.Join(path.Dir(part), "_rels", path.Base(part)+".rels"), r)
}
