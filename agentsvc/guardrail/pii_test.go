package guardrail_test

import (
	"strings"
	"testing"

	"stoa/agentsvc/guardrail"
)

func TestPII(t *testing.T) {
	t.Parallel()
	remove := func(p guardrail.PII) *guardrail.Guardrail {
		p.Redaction = guardrail.Remove
		return newGuardrail(t, guardrail.Options{Output: guardrail.Output{PII: &p}})
	}
	email, phone := remove(guardrail.PII{Email: true}), remove(guardrail.PII{Phone: true})
	ssn, card := remove(guardrail.PII{SSN: true}), remove(guardrail.PII{CreditCard: true})
	tests := []struct {
		g          *guardrail.Guardrail
		text, want string // what is left
	}{
		{email, "mail bob@example.com.", "mail ."},
		{email, "<o'brien+x@mail.example.co.uk>, MÜLLER@bücher.example", "<>, "},
		{email, "bob@localhost a@b @x.org x@.org 3@4.5", "bob@localhost a@b @x.org x@.org 3@4.5"},
		{email, "a@b.cd@e.fg", ""},

		{phone, "call +49 30 1234567!", "call !"},
		{phone, "+1 (202) 555-0123, (202) 555-0123, 202-555-0123, 202.555.0123, 1 202 555 0123", ", , , , "},
		{phone, "tel:+4930123456;ext=5", "tel:;ext=5"},
		{phone, "202\u2011555\u20110123", ""},
		{phone, "2025550123, 102-555-0123, 202-155-0123, 202-555-012, +12 345, +0 123 456 789", "2025550123, 102-555-0123, 202-155-0123, 202-555-012, +12 345, +0 123 456 789"},
		{phone, "id 202-555-0123x and a202-555-0123", "id 202-555-0123x and a202-555-0123"},
		{phone, "2024-11-20 10:30, 192.168.10.254, 3.14159265358979", "2024-11-20 10:30, 192.168.10.254, 3.14159265358979"},
		{phone, "room 12 202-555-0123", "room 12 "},

		{ssn, "123-45-6789 and 123 45 6789.", " and ."},
		{ssn, "000-12-3456 666-12-3456 900-12-3456 123-00-4567 123-45-0000", "000-12-3456 666-12-3456 900-12-3456 123-00-4567 123-45-0000"},
		{ssn, "123456789, 123-45 6789, 1234-56-7890, x123-45-6789", "123456789, 123-45 6789, 1234-56-7890, x123-45-6789"},

		{card, "4111111111111111 5555 5555 5555 4444, 3782-822463-10005", " , "},
		{card, "x4111111111111111x", "xx"},
		{card, "4111 1111 1111 1111 123", " 123"},
		{card, "12 4111 1111 1111 1111", "12 "},
		{card, "4111 1111 1111 1112, 4111-1111 1111-1111, 41111111111111111111, 0000000000000000, 411111111111", "4111 1111 1111 1112, 4111-1111 1111-1111, 41111111111111111111, 0000000000000000, 411111111111"},
		{card, "550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"},
	}
	for _, tt := range tests {
		if got := evaluateAnswer(tt.g, tt.text); got.joinPieces() != tt.want || (len(got.Found) > 0) != (tt.text != tt.want) {
			t.Errorf("%q: %q is left, want %q (%v)", tt.text, got.joinPieces(), tt.want, got.Found)
		}
	}
}

func TestRedaction(t *testing.T) {
	t.Parallel()
	const text = "a.b@x.org, A.B@x.org, 123-45-6789, 123 45 6789, c@x.org"
	mask := newGuardrail(t, guardrail.Options{Output: guardrail.Output{PII: &guardrail.PII{Email: true, SSN: true}}})
	if got := evaluateAnswer(mask, text).joinPieces(); got != "*.*@*.***, *.*@*.***, ***-**-****, *** ** ****, *@*.***" {
		t.Errorf("masked: %q", got)
	}
	hash := newGuardrail(t, guardrail.Options{Output: guardrail.Output{PII: &guardrail.PII{Email: true, SSN: true, Redaction: guardrail.Hash}}})
	marks := strings.Split(evaluateAnswer(hash, text).joinPieces(), ", ")
	if len(marks) != 5 || !strings.HasPrefix(marks[0], "[email:") || !strings.HasPrefix(marks[2], "[ssn:") || len(marks[0]) != len("[email:0123456789ab]") {
		t.Fatalf("hashed: %q", marks)
	}
	if marks[0] != marks[1] || marks[2] != marks[3] || marks[0] == marks[4] {
		t.Errorf("equal data must have equal marks: %q", marks)
	}
	other := newGuardrail(t, guardrail.Options{Output: guardrail.Output{PII: &guardrail.PII{Email: true, SSN: true, Redaction: guardrail.Hash}}})
	if marks[0] == strings.Split(evaluateAnswer(other, text).joinPieces(), ", ")[0] {
		t.Error("the marks depend on no key")
	}
}

// FuzzOutput checks that no text makes the detectors fail, that the allowed text has nothing left that they find, and
// that it does not depend on the pieces.
func FuzzOutput(f *testing.F) {
	for i, text := range sampleTexts {
		f.Add(text, i)
	}
	pii := allPII
	pii.Redaction = guardrail.Hash
	g := newGuardrail(f, guardrail.Options{Output: guardrail.Output{PII: &pii, Content: &guardrail.Content{
		Rule: newRule(guardrail.Modify), Keywords: []string{"secret project", "秘密"}, Patterns: []string{`key-\w+-key`, `x[^y]*y`}}}})
	f.Fuzz(func(t *testing.T, text string, at int) {
		at = min(max(at, 0), len(text))
		complete := evaluateAnswer(g, text)
		requireSameResult(t, complete, evaluateAnswer(g, text[:at], text[at:]))
		if len(complete.Found) == 0 && complete.joinPieces() != text {
			t.Errorf("%q became %q without a finding", text, complete.joinPieces())
		}
	})
}

// TestOptionsStay checks that guardrails do not change the options they are built from.
func TestOptionsStay(t *testing.T) {
	t.Parallel()
	o := guardrail.PII{Email: true}
	newGuardrail(t, guardrail.Options{Output: guardrail.Output{PII: &o}})
	if o != (guardrail.PII{Email: true}) {
		t.Errorf("the options became %+v", o)
	}
}
