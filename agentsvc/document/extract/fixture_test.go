package extract_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/xuri/excelize/v2"
)

// entry is one entry of an archive.
type entry struct{ name, text string }

// buildZip returns an archive.
func buildZip(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		w, err := z.Create(e.name)
		if err == nil {
			_, err = w.Write([]byte(e.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// wordNamespace declares the prefixes that buildDOCX uses.
const wordNamespace = `xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"`

// buildDOCX returns a text document with a body. Its styles are named in German, as a localised Office does.
func buildDOCX(t testing.TB, body string) []byte {
	t.Helper()
	return buildZip(t,
		entry{"[Content_Types].xml", `<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>`},
		entry{"word/styles.xml", `<w:styles ` + wordNamespace + `><w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>
			<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>
			<w:style w:styleId="Eigene"><w:name w:val="Eigene"/><w:basedOn w:val="berschrift2"/></w:style></w:styles>`},
		entry{"docProps/core.xml", `<cp:coreProperties xmlns:cp="c" xmlns:dc="d"><dc:title>Handbook</dc:title></cp:coreProperties>`},
		entry{"word/document.xml", `<w:document ` + wordNamespace + `><w:body>` + body + `</w:body></w:document>`},
		entry{"word/footnotes.xml", `<w:footnotes ` + wordNamespace + `><w:footnote><w:p><w:r><w:t>A footnote.</w:t></w:r></w:p></w:footnote></w:footnotes>`},
	)
}

// wordParagraph returns a paragraph of a document.
func wordParagraph(style, text string) string {
	return `<w:p><w:pPr><w:pStyle w:val="` + style + `"/><w:tabs><w:tab w:val="left"/></w:tabs></w:pPr><w:r><w:t xml:space="preserve">` + text + `</w:t></w:r></w:p>`
}

// buildPPTX returns a presentation whose slides are in another order than their names.
func buildPPTX(t testing.TB) []byte {
	t.Helper()
	shape := func(kind, text string) string {
		return `<p:sp><p:nvSpPr><p:nvPr><p:ph type="` + kind + `"/></p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>` + text + `</a:t></a:r></a:p></p:txBody></p:sp>`
	}
	slide := func(shapes ...string) string {
		return `<p:sld xmlns:p="p" xmlns:a="a"><p:cSld><p:spTree>` + strings.Join(shapes, "") + `</p:spTree></p:cSld></p:sld>`
	}
	return buildZip(t,
		entry{"ppt/presentation.xml", `<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst><p:sldId id="256" r:id="rId2"/><p:sldId id="257" r:id="rId1"/></p:sldIdLst></p:presentation>`},
		entry{"ppt/_rels/presentation.xml.rels", `<Relationships><Relationship Id="rId1" Type="x/slide" Target="slides/slide1.xml"/><Relationship Id="rId2" Type="x/slide" Target="/ppt/slides/slide2.xml"/></Relationships>`},
		entry{"ppt/slides/slide1.xml", slide(shape("body", "Second text"), shape("title", "Prices"), shape("sldNum", "2"))},
		entry{"ppt/slides/slide2.xml", slide(shape("ctrTitle", "Welcome"), shape("subTitle", "All of us"))},
		entry{"ppt/slides/_rels/slide1.xml.rels", `<Relationships><Relationship Id="rId1" Type="x/notesSlide" Target="../notesSlides/notesSlide1.xml"/></Relationships>`},
		entry{"ppt/notesSlides/notesSlide1.xml", slide(shape("body", "Speak slowly"))},
	)
}

// buildODT returns a text of OpenDocument.
func buildODT(t testing.TB, manifest string) []byte {
	t.Helper()
	return buildZip(t,
		entry{"mimetype", "application/vnd.oasis.opendocument.text"},
		entry{"META-INF/manifest.xml", `<m:manifest xmlns:m="m">` + manifest + `</m:manifest>`},
		entry{"meta.xml", `<o:meta xmlns:o="o" xmlns:dc="dc"><dc:title>Manual</dc:title></o:meta>`},
		entry{"content.xml", `<o:body xmlns:o="o" xmlns:text="t" xmlns:table="b" xmlns:office="f">
			<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>
			<text:h text:outline-level="1">Warranty</text:h><text:p>Two<text:s text:c="2"/>years,
			 <text:span>no more</text:span>.<office:annotation><text:p>a comment</text:p></office:annotation></text:p>
			<text:h text:outline-level="2">Exceptions</text:h>
			<text:list><text:list-item><text:p>water</text:p></text:list-item><text:list-item><text:p>fire</text:p></text:list-item></text:list>
			<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell><table:table-cell><text:p>b</text:p></table:table-cell></table:table-row></table:table>
			</o:body>`},
	)
}

// buildXLSX returns a workbook with two sheets.
func buildXLSX(t testing.TB) []byte {
	t.Helper()
	f := excelize.NewFile()
	defer func() { _ = f.Close() }()
	set := func(sheet, cell string, value any) {
		if err := f.SetCellValue(sheet, cell, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.SetSheetName("Sheet1", "Prices"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.NewSheet("Notes"); err != nil {
		t.Fatal(err)
	}
	set("Prices", "A2", "Product")
	set("Prices", "B2", "Price")
	set("Prices", "A3", "Kettle")
	set("Prices", "B3", 24.5)
	set("Prices", "A6", "Pot")
	set("Prices", "B6", 12)
	set("Notes", "A1", "Only one column")
	var b bytes.Buffer
	if err := f.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// buildPDF returns a PDF of numbered objects, from 1; object 1 is the catalogue. trailer is added to the trailer.
func buildPDF(trailer string, objects ...string) []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.4\n")
	offsets := make([]int, len(objects))
	for i, object := range objects {
		offsets[i] = b.Len()
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	start := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, offset := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, trailer, start)
	return b.Bytes()
}

// pdfStream returns a stream object.
func pdfStream(dictionary, content string) string {
	return fmt.Sprintf("<< %s /Length %d >>\nstream\n%s\nendstream", dictionary, len(content), content)
}

// pdfFont is the object of a font.
const pdfFont = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"

// buildPages returns a PDF with one page for each content.
func buildPages(trailer string, contents ...string) []byte {
	objects := []string{"<< /Type /Catalog /Pages 2 0 R >>", "", pdfFont}
	kids := ""
	for _, content := range contents {
		page := len(objects) + 1
		kids += fmt.Sprintf("%d 0 R ", page)
		objects = append(objects, fmt.Sprintf("<< /Type /Page /Parent 2 0 R /Contents %d 0 R >>", page+1), pdfStream("", content))
	}
	objects[1] = fmt.Sprintf("<< /Type /Pages /Kids [%s] /Count %d /Resources << /Font << /F1 3 0 R >> /XObject << >> >> >>", kids, len(contents))
	return buildPDF(trailer, objects...)
}
