package invoice

import (
	"io"
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"stoa/billing/party"
)

// textColumns is the width of an invoice in plain text.
const textColumns = 80

// WriteText writes the invoice as plain text of at most textColumns columns, for a terminal or a mail. Characters that
// would control a terminal are replaced: tenants choose names.
func (inv Invoice) WriteText(w io.Writer) error {
	var p textPage
	p.writeParty(inv.Seller)
	p.writeText("", inv.printedTitle())
	p.WriteString("\n")
	p.writeParty(inv.Buyer)
	for _, fact := range inv.printedFacts() {
		p.writeText("", fact)
	}
	p.WriteString("\n")
	part := rowPart(-1)
	for _, r := range inv.printedRows() {
		if r.Part != part {
			part = r.Part
			p.WriteString(strings.Repeat("-", textColumns) + "\n")
		}
		p.writeRow(r)
	}
	for _, note := range []string{inv.unpricedNote(), inv.PaymentNote()} {
		if note != "" {
			p.WriteString("\n")
			p.writeText("", note)
		}
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// textPage is plain text that is being written.
type textPage struct{ strings.Builder }

// writeParty writes a party and an empty line, nothing if it is not set.
func (p *textPage) writeParty(of *party.Party) {
	if of == nil {
		return
	}
	p.writeText("", of.Name)
	for _, line := range of.Address {
		p.writeText("", line)
	}
	if of.TaxID != "" {
		p.writeText("", "Tax id "+of.TaxID)
	}
	if of.Email != "" {
		p.writeText("", of.Email)
	}
	p.WriteString("\n")
}

// writeText writes a text in as many lines as it needs, each after indent.
func (p *textPage) writeText(indent, text string) {
	for _, line := range wrapText(text, textColumns-len(indent)) {
		p.WriteString(indent + line + "\n")
	}
}

// writeRow writes a row with its amount at the right end of the first line and its detail below.
func (p *textPage) writeRow(r printedRow) {
	for i, line := range wrapText(r.Text, textColumns-len(r.Amount)-2) {
		if i == 0 && r.Amount != "" {
			line += strings.Repeat(" ", textColumns-len(r.Amount)-countColumns(line)) + r.Amount
		}
		p.WriteString(line + "\n")
	}
	if r.Detail != "" {
		p.writeText("  ", r.Detail)
	}
}

// wrapText breaks a text between its words into lines of at most limit columns, and words that are longer anywhere.
func wrapText(text string, limit int) (lines []string) {
	line, columns := "", 0
	for _, word := range strings.Fields(strings.Map(makePrintable, text)) {
		if columns > 0 {
			if columns+1+countColumns(word) > limit {
				lines = append(lines, line)
				line, columns = "", 0
			} else {
				line, columns = line+" ", columns+1
			}
		}
		for _, r := range word {
			if columns+runeColumns(r) > limit {
				lines = append(lines, line)
				line, columns = "", 0
			}
			line, columns = line+string(r), columns+runeColumns(r)
		}
	}
	return append(lines, line)
}

// makePrintable returns a space for any white space, and the replacement character for what a terminal does not show.
func makePrintable(r rune) rune {
	switch {
	case unicode.IsSpace(r):
		return ' '
	case unicode.IsPrint(r):
		return r
	}
	return unicode.ReplacementChar
}

// countColumns returns the columns that a text takes.
func countColumns(text string) (n int) {
	for _, r := range text {
		n += runeColumns(r)
	}
	return n
}

// runeColumns returns the columns that a character takes: two for the wide ones of East Asian scripts.
func runeColumns(r rune) int {
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	if unicode.Is(unicode.Mn, r) {
		return 0
	}
	return 1
}
