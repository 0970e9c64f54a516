package extract_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/extract"
)

// TestFormats checks text, places, title and type of each format.
func TestFormats(t *testing.T) {
	t.Parallel()
	type place = document.Place
	tests := []struct {
		name, file, mediaType string
		data                  []byte
		want                  document.Content
	}{
		{"text", "a.txt", "", []byte("one\r\ntwo\r\n\x1b\n"), document.Content{MediaType: "text/plain",
			Sections: []document.Section{{Text: "one\ntwo\n", Place: place{Line: 1}}}}},
		{"source code", "src/main.go", "application/octet-stream", []byte("package main\n\n\tfunc main() {}\n"), document.Content{MediaType: "text/plain",
			Sections: []document.Section{{Text: "package main\n\n\tfunc main() {}\n", Place: place{Line: 1}}}}},
		{"UTF-16", "a.txt", "", []byte("\xFF\xFEh\x00\xFC\x00"), document.Content{MediaType: "text/plain",
			Sections: []document.Section{{Text: "hü\n", Place: place{Line: 1}}}}},
		{"Latin-1", "a.txt", "", []byte("M\xFCller und S\xF6hne"), document.Content{MediaType: "text/plain",
			Sections: []document.Section{{Text: "Müller und Söhne\n", Place: place{Line: 1}}}}},
		{"declared charset", "a.txt", "text/plain; charset=iso-8859-2", []byte("\xB3adny i mi\xB3y"), document.Content{MediaType: "text/plain",
			Sections: []document.Section{{Text: "ładny i miły\n", Place: place{Line: 1}}}}},
		{"single wrong bytes", "a.txt", "", []byte("Müller \xFF and more"), document.Content{MediaType: "text/plain",
			Sections: []document.Section{{Text: "Müller \uFFFD and more\n", Place: place{Line: 1}}}}},
		{"Markdown", "README.md", "", []byte("---\ntitle: \"The shop\"\n---\nIntro\n\n# Tea *and* `pots`\n\ntext\n```\n# no heading\n```\nGreen\n-----\n\n- a\n- b\n# Coffee #\nblack\n"),
			document.Content{Title: "The shop", MediaType: "text/markdown", Sections: []document.Section{
				{Text: "---\ntitle: \"The shop\"\n---\nIntro\n", Place: place{Line: 1}},
				{Text: "# Tea *and* `pots`\n\ntext\n```\n# no heading\n```\n", Place: place{Heading: "Tea and pots", Line: 6}},
				{Text: "Green\n-----\n\n- a\n- b\n", Place: place{Heading: "Tea and pots > Green", Line: 12}},
				{Text: "# Coffee #\nblack\n", Place: place{Heading: "Coffee", Line: 17}},
			}}},
		{"HTML", "", "text/html", []byte("<!doctype html><html><head><title> The\nshop </title><style>p{}</style></head><body><script>var a = '<p>no</p>'</script>" +
			"<p>Wel<b>come</b>, all</p><h1>Tea <i>pots</i></h1><p>one<br>two</p><ul><li>a</li><li> b </li></ul><h2>Prices</h2>" +
			"<table><tr><th>Pot</th><th>Price</th></tr><tr><td>small</td><td>3&nbsp;&euro;</td></tr></table><pre>x\n  y</pre><svg><text>no</text></svg><h1>End"),
			document.Content{Title: "The shop", MediaType: "text/html", Sections: []document.Section{
				{Text: "Welcome, all\n\n"},
				{Text: "Tea pots\n\none\ntwo\n\n- a\n- b\n\n", Place: place{Heading: "Tea pots"}},
				{Text: "Prices\n\nPot | Price\nsmall | 3 €\n\nx\n  y\n\n", Place: place{Heading: "Tea pots > Prices"}},
				{Text: "End\n\n", Place: place{Heading: "End"}},
			}}},
		{"CSV", "p.csv", "", []byte("\nname;price;note\nKettle;24,5;\"two\nlines\"\n;;\nPot;12;\nPan;8;new\n"), document.Content{MediaType: "text/csv", Sections: []document.Section{
			{Text: "name | price | note\nname: Kettle | price: 24,5 | note: two lines\n", Place: place{Line: 2}},
			{Text: "name: Pot | price: 12\nname: Pan | price: 8 | note: new\n", Place: place{Line: 6}},
		}}},
		{"CSV without names", "p.csv", "", []byte("1,2\n3,4\n"), document.Content{MediaType: "text/csv", Sections: []document.Section{
			{Text: "1 | 2\n3 | 4\n", Place: place{Line: 1}}}}},
		{"JSON", "a.json", "", []byte("{\n  \"a\": [1, 2]\n}\n"), document.Content{MediaType: "application/json", Sections: []document.Section{
			{Text: "{\n  \"a\": [1, 2]\n}\n", Place: place{Line: 1}}}}},
		{"XLSX", "p.xlsx", "", buildXLSX(t), document.Content{MediaType: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", Sections: []document.Section{
			{Text: "Product | Price\nProduct: Kettle | Price: 24.5\n", Place: place{Sheet: "Prices", Line: 2}},
			{Text: "Product: Pot | Price: 12\n", Place: place{Sheet: "Prices", Line: 6}},
			{Text: "Only one column\n", Place: place{Sheet: "Notes", Line: 1}},
		}}},
		{"DOCX", "h.docx", "", buildDOCX(t, wordParagraph("Standard", "Intro")+wordParagraph("berschrift1", "Warranty")+
			`<w:p><w:r><w:t xml:space="preserve">Two </w:t></w:r><w:del><w:r><w:delText>three</w:delText></w:r></w:del><w:r><w:t>years</w:t><w:br/><w:t>exactly</w:t></w:r>`+
			`<mc:AlternateContent><mc:Choice><w:t> new</w:t></mc:Choice><mc:Fallback><w:t> old</w:t></mc:Fallback></mc:AlternateContent></w:p>`+
			wordParagraph("Eigene", "Exceptions")+`<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>water</w:t></w:r></w:p>`+
			`<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p><w:p><w:r><w:t>c</w:t></w:r></w:p></w:tc></w:tr></w:tbl>`),
			document.Content{Title: "Handbook", MediaType: "application/vnd.openxmlformats-officedocument.wordprocessingml.document", Sections: []document.Section{
				{Text: "Intro\n\n"},
				{Text: "Warranty\n\nTwo years\nexactly new\n\n", Place: place{Heading: "Warranty"}},
				{Text: "Exceptions\n\n- water\na | b c\n\n", Place: place{Heading: "Warranty > Exceptions"}},
				{Text: "A footnote.\n\n"},
			}}},
		{"PPTX", "", "", buildPPTX(t), document.Content{Title: "Welcome", MediaType: "application/vnd.openxmlformats-officedocument.presentationml.presentation", Sections: []document.Section{
			{Text: "Welcome\n\nAll of us\n\n", Place: place{Page: 1, Heading: "Welcome"}},
			{Text: "Prices\n\nSecond text\n\nSpeak slowly\n\n", Place: place{Page: 2, Heading: "Prices"}},
		}}},
		{"ODT", "m.odt", "", buildODT(t, ""), document.Content{Title: "Manual", MediaType: "application/vnd.oasis.opendocument.text", Sections: []document.Section{
			{Text: "Warranty\n\nTwo  years, no more.\n\n", Place: place{Heading: "Warranty"}},
			{Text: "Exceptions\n\n- water\n- fire\na | b\n\n", Place: place{Heading: "Warranty > Exceptions"}},
		}}},
		{"PDF with divided words and ligatures", "h.pdf", "", buildPDF("", "<< /Type /Catalog /Pages 2 0 R >>", "<< /Kids [3 0 R] >>",
			"<< /Type /Page /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /Encoding << /Differences [1 /fi] >> >> >> >> /Contents [4 0 R 5 0 R] >>",
			pdfStream("", "BT /F1 12 Tf 14 TL (\001rst manip-) Tj T* (ulation 5-) Tj T*"), pdfStream("", "(fold) Tj ET")),
			document.Content{MediaType: "application/pdf", Sections: []document.Section{
				{Text: "first manipulation 5-\nfold\n\n", Place: place{Page: 1}},
			}}},
		{"PDF", "h.pdf", "", buildPages("/Info << /Title (Handbook) >>",
			"BT /F1 12 Tf 72 720 Td (Warr) Tj (anty) Tj 0 -14 Td (Two) Tj 40 0 Td (years) Tj 0 -40 Td [(no) -300 (mo) 20 (re)] TJ ET",
			"",
			"BT /F1 12 Tf 14 TL 1 0 0 1 72 700 Tm (a) Tj T* (b) Tj ET"),
			document.Content{Title: "Handbook", MediaType: "application/pdf", Sections: []document.Section{
				{Text: "Warranty\nTwo years\n\nno more\n\n", Place: place{Page: 1}},
				{Text: "a\nb\n\n", Place: place{Page: 3}},
			}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := extract.ReadContent(tt.file, tt.mediaType, tt.data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
