package guardrail

import (
	"cmp"
	"strings"
)

// PII is a check of answers for personal data.
type PII struct {
	Rule       // Modify if no action is set
	Email      bool
	Phone      bool
	SSN        bool
	CreditCard bool
	// Redaction is what replaces the data if the action is Modify; Mask if empty.
	Redaction Redaction
}

// emailPattern matches e-mail addresses, with letters of all scripts. It is wider than RFC 5321 on purpose: a false
// match costs less than a missed one.
const emailPattern = `[\p{L}\p{N}\p{M}!#$%*+^_{|}~'.-]+@(?:[\p{L}\p{N}][\p{L}\p{N}\p{M}-]*\.)+\p{L}[\p{L}\p{N}\p{M}-]*`

// numberPattern matches rows of digit groups with up to three separators between them, as long as possible. What a row
// contains (findNumbers) depends on the whole: the middle of a longer number is not a telephone number.
const numberPattern = `\+?\(?[0-9](?:[ \t\x{A0}\x{2007}\x{2009}\x{202F}\x{2010}-\x{2015}().-]{0,3}[0-9])*`

// newDetectors returns at most two detectors: one for addresses and one for all kinds of numbers. key is for [Hash].
func (p *PII) newDetectors(key []byte) ([]detector, error) {
	redaction := cmp.Or(p.Redaction, Mask)
	d := detector{check: "output.pii", rule: p.withDefault(Modify), replace: redaction.newReplacer(key)}
	var out []detector
	if p.Email {
		prog, err := compileProgram("", emailPattern)
		if err != nil {
			return nil, err
		}
		d.program, d.kind = prog, "email"
		out = append(out, d)
	}
	if p.Phone || p.SSN || p.CreditCard {
		prog, err := compileProgram("", numberPattern)
		if err != nil {
			return nil, err
		}
		d.program, d.kind, d.refine = prog, "number", p.findNumbers
		out = append(out, d)
	}
	return out, nil
}

// findNumbers returns the parts of a row of digit groups that are personal data, tried at each group in the order card,
// social security number, telephone number. before and after are the characters around the row.
func (p *PII) findNumbers(row string, before, after rune) []matchPart {
	groups := splitDigitGroups(row)
	free := func(i, j int) bool { // no word character touches the groups i to j
		return (i > 0 || groups[0].prefix != "" || !isWordRune(before)) && (j < len(groups)-1 || !isWordRune(after))
	}
	var parts []matchPart
	for i := 0; i < len(groups); {
		n, kind := 0, ""
		if p.CreditCard {
			n, kind = matchCard(groups[i:]), "card"
		}
		if n == 0 && p.SSN {
			if n, kind = matchSSN(groups[i:]), "ssn"; n > 0 && !free(i, i+n-1) {
				n = 0
			}
		}
		if n == 0 && p.Phone {
			if n, kind = matchPhone(groups[i:]), "phone"; n > 0 && !free(i, i+n-1) {
				n = 0
			}
		}
		if n == 0 {
			i++
			continue
		}
		start, end := groups[i].start, groups[i+n-1].end
		start -= len(groups[i].prefix)
		parts = append(parts, matchPart{start, end, kind})
		i += n
	}
	return parts
}

// digitGroup is a run of digits within a row. start and end are byte offsets of the digits in the row.
type digitGroup struct {
	digits     string
	start, end int
	// separator is the text between the previous group and the digits; for the first group, the text before the digits.
	separator string
	// prefix is the end of separator that belongs to the number: plus signs and opening parentheses.
	prefix string
}

// splitDigitGroups returns the digit groups of a row.
func splitDigitGroups(row string) []digitGroup {
	var groups []digitGroup
	for i := 0; i < len(row); {
		j := i
		for j < len(row) && (row[j] < '0' || row[j] > '9') {
			j++
		}
		k := j
		for k < len(row) && row[k] >= '0' && row[k] <= '9' {
			k++
		}
		if k == j {
			break
		}
		g := digitGroup{digits: row[j:k], start: j, end: k, separator: row[i:j]}
		g.prefix = g.separator[len(strings.TrimRight(g.separator, "+(")):]
		groups = append(groups, g)
		i = k
	}
	return groups
}

// matchCard returns how many of the first groups form a payment card number, 0 if none: 13 to 19 digits, the first of
// them 2 to 6, with a valid check digit (Luhn formula, ISO/IEC 7812-1), and the same single separator between all
// groups. The longest match wins.
func matchCard(groups []digitGroup) int {
	digits, best := "", 0
	if d := groups[0].digits[0]; d < '2' || d > '6' {
		return 0
	}
	for n, g := range groups {
		if n > 0 && (g.separator != groups[1].separator || len([]rune(g.separator)) != 1) {
			break
		}
		if digits += g.digits; len(digits) > 19 {
			break
		}
		if len(digits) >= 13 && isLuhnValid(digits) {
			best = n + 1
		}
	}
	return best
}

// isLuhnValid reports whether the last digit is the Luhn check digit of those before it.
func isLuhnValid(digits string) bool {
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// matchSSN returns 3 if the first groups are a United States social security number, else 0: three, two and four digits
// with the same single separator, excluding groups that are never assigned (000, 666, 9xx; 00; 0000).
func matchSSN(groups []digitGroup) int {
	if len(groups) < 3 {
		return 0
	}
	a, b, c := groups[0].digits, groups[1].digits, groups[2].digits
	if len(a) != 3 || len(b) != 2 || len(c) != 4 || groups[1].separator != groups[2].separator || len([]rune(groups[1].separator)) != 1 {
		return 0
	}
	if a == "000" || a == "666" || a[0] == '9' || b == "00" || c == "0000" {
		return 0
	}
	return 3
}

// matchPhone returns how many of the first groups form a telephone number, 0 if none: a plus and 8 to 15 digits (ITU-T
// E.164), or the North American form of three, three and four digits, the first two groups not beginning with 0 or 1,
// with or without a leading 1.
func matchPhone(groups []digitGroup) int {
	if strings.Contains(groups[0].prefix, "+") {
		return matchInternationalPhone(groups)
	}
	n := 0
	if groups[0].digits == "1" {
		n = 1
	}
	lengths := []int{3, 3, 4}
	if len(groups) < n+len(lengths) {
		return 0
	}
	for i, want := range lengths {
		g := groups[n+i]
		if len(g.digits) != want || (i < 2 && g.digits[0] < '2') {
			return 0
		}
	}
	return n + len(lengths)
}

// matchInternationalPhone is matchPhone for the form with a plus. A country code never begins with 0.
func matchInternationalPhone(groups []digitGroup) int {
	if groups[0].digits[0] == '0' {
		return 0
	}
	digits, best := 0, 0
	for n, g := range groups {
		if n > 0 && strings.Contains(g.separator, "+") {
			break
		}
		if digits += len(g.digits); digits > 15 {
			break
		}
		if digits >= 8 {
			best = n + 1
		}
	}
	return best
}
