package extract_test

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/extract"
	"stoa/agentsvc/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.RunHelper(os.Getenv(sandbox.HelperVariable))
	runHostileHelper(os.Getenv(extract.HelperVariable))
	extract.RunHelper(os.Getenv(extract.HelperVariable))
	goleak.VerifyTestMain(m)
}

// requireProblem checks that err has a problem and a message without the text of a library.
func requireProblem(t *testing.T, err error, want extract.Problem) {
	t.Helper()
	var known *agentsvc.Error
	if !errors.Is(err, want) || !errors.As(err, &known) {
		t.Fatalf("got %v, want %q", err, string(want))
	}
	if known.Message == "" || known.Code != agentsvc.CodeInvalid && known.Code != agentsvc.CodeTooLarge {
		t.Errorf("code %q, message %q", known.Code, known.Message)
	}
}

// hostileFiles are files that are not read, with the reason.
func hostileFiles(t testing.TB) []hostileFile {
	const encrypt = "/ID [<00><00>] /Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P -4 /O (01234567890123456789012345678901) /U (01234567890123456789012345678901) >>"
	page := "BT /F1 12 Tf (text) Tj ET"
	deepWord := strings.Repeat("<w:ins>", 5_000) + wordParagraph("", "deep") + strings.Repeat("</w:ins>", 5_000)
	return []hostileFile{
		{"no bytes", "a.txt", nil, extract.Empty},
		{"only spaces", "a.md", []byte(" \n\t\n"), extract.Empty},
		{"document without text", "a.docx", buildDOCXWithoutNotes(t), extract.Empty},
		{"PDF without text", "a.pdf", buildPages("", ""), extract.Empty},
		{"scanned PDF", "a.pdf", buildScanned(), extract.Scanned},
		{"image", "a.png", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01"), extract.Unsupported},
		{"rich text", "a.rtf", []byte(`{\rtf1\ansi text}`), extract.Unsupported},
		{"archive", "a.zip", buildZip(t, entry{"a.txt", "text"}), extract.Unsupported},
		{"program", "a", []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x3e\x00"), extract.Unsupported},
		{"old Office", "a.doc", []byte("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1" + strings.Repeat("\x00", 600)), extract.Unsupported},
		{"foreign encoding", "a.txt", []byte("\xCF\xF0\xE8\xE2\xE5\xF2, \xEC\xE8\xF0"), extract.Unsupported},
		{"encrypted Office", "a.docx", []byte("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1" + strings.Repeat("\x00", 600) + "E\x00n\x00c\x00r\x00y\x00p\x00t\x00e\x00d\x00P\x00a\x00c\x00k\x00a\x00g\x00e\x00"), extract.Encrypted},
		{"encrypted ODT", "a.odt", buildODT(t, "<m:encryption-data/>"), extract.Encrypted},
		{"encrypted archive", "a.docx", setEncrypted(buildDOCX(t, wordParagraph("", "text"))), extract.Encrypted},
		{"encrypted PDF", "a.pdf", buildPages(encrypt, page), extract.Encrypted},
		{"PDF of a newer encryption", "a.pdf", buildPages("/Encrypt << /Filter /Standard /V 5 /R 6 /Length 256 >>", page), extract.Encrypted},
		{"text as PDF", "a.pdf", []byte("<html>sign in first</html>"), extract.Damaged},
		{"image as DOCX", "a.docx", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01"), extract.Damaged},
		{"archive as DOCX", "a.docx", buildZip(t, entry{"a.txt", "text"}), extract.Damaged},
		{"truncated DOCX", "a.docx", half(buildDOCX(t, wordParagraph("", "text"))), extract.Damaged},
		{"truncated PPTX", "a.pptx", half(buildPPTX(t)), extract.Damaged},
		{"truncated XLSX", "a.xlsx", half(buildXLSX(t)), extract.Damaged},
		{"truncated ODT", "a.odt", half(buildODT(t, "")), extract.Damaged},
		{"truncated PDF", "a.pdf", half(buildPages("", page)), extract.Damaged},
		{"broken XML", "a.docx", buildDOCX(t, "<w:p><w:r></w:p>"), extract.Damaged},
		{"entities", "a.odt", buildZip(t, entry{"mimetype", "application/vnd.oasis.opendocument.text"},
			entry{"content.xml", `<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x><p>&b;</p></x>`}), extract.Damaged},
		{"PDF with a loop of pages", "a.pdf", buildPDF("", "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"), extract.Damaged},
		{"PDF with a loop of tables", "a.pdf", buildPrevLoop(), extract.Damaged},
		{"PDF with a million pages", "a.pdf", buildPDF("", "<< /Type /Catalog /Pages 2 0 R >>",
			"<< /Type /Pages /Count 1000000 /Kids ["+strings.Repeat("3 0 R ", 1_000_000)+"] >>", "<< /Type /Page >>"), extract.TooLarge},
		{"bomb", "a.docx", buildDOCX(t, wordParagraph("", strings.Repeat("a", 4<<20))), extract.TooLarge},
		{"bomb that declares less", "a.docx", buildLyingZip(t, "word/document.xml", strings.Repeat("a", 8<<20), 100), extract.Damaged},
		{"bomb as workbook", "a.xlsx", buildZip(t, entry{"xl/workbook.xml", "<workbook/>"}, entry{"xl/worksheets/sheet1.xml", strings.Repeat("<row/>", 1<<20)}), extract.TooLarge},
		{"many parts", "a.docx", buildManyParts(t), extract.TooLarge},
		{"deep document", "a.docx", buildDOCX(t, deepWord), extract.TooComplex},
		{"too much text", "a.csv", []byte(strings.Repeat("name", 20) + "," + strings.Repeat("text", 20) + "\n" + strings.Repeat("a,b\n", 110_000)), extract.TooLarge},
		{"too large", "a.txt", bytes.Repeat([]byte("text\n"), extract.MaxFileBytes/5+1), extract.TooLarge},
	}
}

// hostileFile is a file that is not read.
type hostileFile struct {
	name, file string
	data       []byte
	want       extract.Problem
}

// TestHostileFiles checks that each kind of file that cannot be read is named.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range hostileFiles(t) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := extract.ReadContent(tt.file, "", tt.data)
			requireProblem(t, err, tt.want)
		})
	}
}

// TestReadsUnusualFiles checks files that are unusual, and read even so.
func TestReadsUnusualFiles(t *testing.T) {
	t.Parallel()
	page := "BT /F1 12 Tf (text) Tj ET"
	form := buildPDF("", "<< /Type /Catalog /Pages 2 0 R >>", "<< /Kids [4 0 R] /Count 1000000 /Resources << /XObject << /X 6 0 R >> /Font << /F1 3 0 R >> >> >>", pdfFont,
		"<< /Type /Page /Contents 5 0 R >>", pdfStream("", "/X Do"), pdfStream("/Subtype /Form", page+" /X Do"))
	tests := []struct {
		name, file string
		data       []byte
		want       string // of the text
	}{
		{"PDF 2.0 with more around it", "a.pdf", append(append([]byte("junk\n"), bytes.Replace(buildPages("", page), []byte("%PDF-1.4"), []byte("%PDF-2.0"), 1)[0:]...), "junk"...), "text"},
		{"PDF that claims a million pages and draws a form in itself", "a.pdf", form, "text"},
		{"PDF with a damaged page", "a.pdf", buildPages("", page, page+" ] >> ) Tj"), "text"},
		{"deep HTML", "a.html", []byte(strings.Repeat("<div><b>", 500_000) + "text"), "text"},
		{"HTML without an end", "a.html", []byte("text<p><a href='x"), "text"},
		{"deep Markdown", "a.md", []byte(strings.Repeat("> ", 5_000) + "text"), "text"},
		{"deep JSON", "a.json", []byte(strings.Repeat("[", 100_000) + `"text"`), "text"},
		{"JSON in one line", "a.json", []byte(`{"a": [` + strings.Repeat(`"text", `, 1000) + `1]}`), "{\n\"a\": [\n\"text\","},
		{"quotes that are not closed", "a.csv", []byte("a,b\n\"text,c\n"), "text"},
		{"media type of nonsense", "a", []byte("text"), "text"},
		{"title of binary", "a.html", []byte("<title>\x1b\xff</title>text"), "text"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := extract.ReadContent(tt.file, "a/b/c; ;=", tt.data)
			if err != nil {
				t.Fatal(err)
			}
			requireValid(t, got)
			if text := got.Text(); !strings.Contains(text, tt.want) {
				t.Errorf("got %.200q, want %q in it", text, tt.want)
			}
		})
	}
}

// requireValid checks what every content must be.
func requireValid(t testing.TB, c document.Content) {
	t.Helper()
	if len(c.Sections) == 0 || c.MediaType == "" || !utf8.ValidString(c.Title) {
		t.Errorf("%d sections, type %q, title %q", len(c.Sections), c.MediaType, c.Title)
	}
	for _, s := range c.Sections {
		if !utf8.ValidString(s.Text) || strings.ContainsAny(s.Text, "\x00\r") || !strings.HasSuffix(s.Text, "\n") || strings.TrimSpace(s.Text) == "" {
			t.Fatalf("text %.200q", s.Text)
		}
		if s.Place.Page < 0 || s.Place.Line < 0 || !utf8.ValidString(s.Place.Heading) || !utf8.ValidString(s.Place.Sheet) {
			t.Fatalf("place %+v", s.Place)
		}
	}
}

// FuzzReadContent checks that no file breaks a reader: each is read, or has a problem.
func FuzzReadContent(f *testing.F) {
	for _, tt := range hostileFiles(f) {
		if len(tt.data) < 100_000 {
			f.Add(tt.file, tt.data)
		}
	}
	f.Add("a.docx", buildDOCX(f, wordParagraph("berschrift1", "Warranty")))
	f.Add("a.pptx", buildPPTX(f))
	f.Add("a.odt", buildODT(f, ""))
	f.Add("a.xlsx", buildXLSX(f))
	f.Add("a.pdf", buildPages("", "BT /F1 12 Tf (text) Tj [(a) -300 (b)] TJ T* (c) ' ET"))
	f.Add("a.md", []byte("---\ntitle: a\n---\n# b\n\n## c *d*\ntext\n"))
	f.Add("a.html", []byte("<title>a</title><h1>b</h1><table><tr><td>c<td>d</table><pre>\n e</pre>"))
	f.Add("a.csv", []byte("a;b\n1;\"2\n3\"\n"))
	f.Add("a.json", []byte(`{"a": [1, "b"]}`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		content, err := extract.ReadContent(name, "", data)
		if err != nil {
			var problem extract.Problem
			if !errors.As(err, &problem) {
				t.Fatalf("%v is no problem", err)
			}
			return
		}
		requireValid(t, content)
	})
}

func half(data []byte) []byte { return data[:len(data)/2] }

// buildDOCXWithoutNotes returns a document whose only paragraph is empty.
func buildDOCXWithoutNotes(t testing.TB) []byte {
	return buildZip(t, entry{"word/document.xml", `<w:document ` + wordNamespace + `><w:body><w:p/></w:body></w:document>`})
}

// buildScanned returns a PDF whose page shows one image.
func buildScanned() []byte {
	return buildPDF("", "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
		"<< /Type /Page /Parent 2 0 R /Resources << /XObject << /Im 5 0 R >> >> /Contents 4 0 R >>", pdfStream("", "q 600 0 0 800 0 0 cm /Im Do Q"),
		pdfStream("/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8", "\x80"))
}

// buildPrevLoop returns a PDF whose table of objects names itself as the one before it.
func buildPrevLoop() []byte {
	data := buildPages("/Prev 0000000000", "BT ET")
	at := bytes.Index(data, []byte("xref\n"))
	offset := []byte("0000000000")
	for i, n := len(offset)-1, at; n > 0; i, n = i-1, n/10 {
		offset[i] = byte('0' + n%10)
	}
	return bytes.Replace(data, []byte("/Prev 0000000000"), append([]byte("/Prev "), offset...), 1)
}

// setEncrypted sets the flag of encryption in the directory of an archive.
func setEncrypted(data []byte) []byte {
	const flagsOffset = 8 // in an entry of the central directory
	for at := 0; ; {
		next := bytes.Index(data[at:], []byte("PK\x01\x02"))
		if next < 0 {
			return data
		}
		at += next + 4
		data[at-4+flagsOffset] |= 1
	}
}

// buildLyingZip returns an archive with an entry that declares fewer bytes than it has.
func buildLyingZip(t testing.TB, name, text string, declared uint64) []byte {
	t.Helper()
	var compressed bytes.Buffer
	w, err := flate.NewWriter(&compressed, flate.BestCompression)
	if err == nil {
		_, err = io.WriteString(w, text)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	raw, err := z.CreateRaw(&zip.FileHeader{Name: name, Method: zip.Deflate, CompressedSize64: uint64(compressed.Len()), UncompressedSize64: declared})
	if err == nil {
		_, err = raw.Write(compressed.Bytes())
	}
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// buildManyParts returns an archive of more entries than any document has.
func buildManyParts(t testing.TB) []byte {
	entries := make([]entry, 10_001)
	for i := range entries {
		entries[i] = entry{filepath.Join("word", strings.Repeat("a", i%7), string(rune('a'+i%26))), ""}
	}
	return buildZip(t, entries...)
}
