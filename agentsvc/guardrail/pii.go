package guardrail

import (
	"cmp"
	"strings"
)

// PII looks for personal data.
type PII struct {
	Rule       // Modify if no action is set
	Email      bool
	Phone      bool
	SSN        bool
	CreditCard bool
	Redaction  Redaction // Mask if empty
}

const emailPattern = `[\p{L}\p{N}\p{M}!#$%*+^_{|}~'.-]+@(?:[\p{L}\p{N}][\p{L}\p{N}\p{M}-]*\.)+\p{L}[\p{L}\p{N}\p{M}-]*`

// numberPattern finds rows of digit groups, all of what stands between two words: what they are is seen from the whole.
const numberPattern = `\+?\(?[0-9](?:[ \t\x{A0}\x{2007}\x{2009}\x{202F}\x{2010}-\x{2015}().-]{0,3}[0-9])*`

func (p *PII) detectors(key []byte) ([]detector, error) {
	redaction := cmp.Or(p.Redaction, Mask)
	d := detector{check: "output.pii", rule: p.orDefault(Modify), replace: redaction.redact(key)}
	var out []detector
	if p.Email {
		prog, err := compile("", emailPattern)
		if err != nil {
			return nil, err
		}
		d.program, d.kind = prog, "email"
		out = append(out, d)
	}
	if p.Phone || p.SSN || p.CreditCard {
		prog, err := compile("", numberPattern)
		if err != nil {
			return nil, err
		}
		d.program, d.kind, d.refine = prog, "number", p.numbers
		out = append(out, d)
	}
	return out, nil
}

// numbers returns the parts of a row of digit groups that are personal data.
func (p *PII) numbers(row string, before, after rune) []part {
	groups := groupsOf(row)
	free := func(i, j int) bool { // no letter touches the groups i to j
		return (i > 0 || groups[0].open != "" || !isWord(before)) && (j < len(groups)-1 || !isWord(after))
	}
	var parts []part
	for i := 0; i < len(groups); {
		n, kind := 0, ""
		if p.CreditCard {
			n, kind = card(groups[i:]), "card"
		}
		if n == 0 && p.SSN {
			if n, kind = ssn(groups[i:]), "ssn"; n > 0 && !free(i, i+n-1) {
				n = 0
			}
		}
		if n == 0 && p.Phone {
			if n, kind = phone(groups[i:]), "phone"; n > 0 && !free(i, i+n-1) {
				n = 0
			}
		}
		if n == 0 {
			i++
			continue
		}
		start, end := groups[i].start, groups[i+n-1].end
		start -= len(groups[i].open)
		parts = append(parts, part{start, end, kind})
		i += n
	}
	return parts
}

// group is a row of digits, with what separates it from the group before it.
type group struct {
	digits     string
	start, end int
	between    string // the group before and this one; "" for the first
	open       string // what before the digits belongs to them: a plus, a parenthesis
}

func groupsOf(row string) []group {
	var groups []group
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
		g := group{digits: row[j:k], start: j, end: k, between: row[i:j]}
		g.open = g.between[len(strings.TrimRight(g.between, "+(")):]
		groups = append(groups, g)
		i = k
	}
	return groups
}

// card returns how many of the first groups are the number of a payment card, 0 if none are: 13 to 19 digits that
// begin with 2 to 6 and whose last digit is right by the formula of Luhn (ISO/IEC 7812-1), with the same single
// separator between all groups.
func card(groups []group) int {
	digits, best := "", 0
	if d := groups[0].digits[0]; d < '2' || d > '6' {
		return 0
	}
	for n, g := range groups {
		if n > 0 && (g.between != groups[1].between || len([]rune(g.between)) != 1) {
			break
		}
		if digits += g.digits; len(digits) > 19 {
			break
		}
		if len(digits) >= 13 && luhn(digits) {
			best = n + 1
		}
	}
	return best
}

// luhn reports whether the last digit is right for those before it.
func luhn(digits string) bool {
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

// ssn returns 3 if the first groups are a social security number of the United States, else 0: three, two and four
// digits with the same single separator, and none of the groups one that is never given out.
func ssn(groups []group) int {
	if len(groups) < 3 {
		return 0
	}
	a, b, c := groups[0].digits, groups[1].digits, groups[2].digits
	if len(a) != 3 || len(b) != 2 || len(c) != 4 || groups[1].between != groups[2].between || len([]rune(groups[1].between)) != 1 {
		return 0
	}
	if a == "000" || a == "666" || a[0] == '9' || b == "00" || c == "0000" {
		return 0
	}
	return 3
}

// phone returns how many of the first groups are a telephone number, 0 if none are: in international form a plus and 8
// to 15 digits (ITU-T E.164), or in the form of North America three, three and four digits that begin with 2 to 9, 2 to
// 9 and any, with a 1 before them or not.
func phone(groups []group) int {
	if strings.Contains(groups[0].open, "+") {
		return international(groups)
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

func international(groups []group) int {
	if groups[0].digits[0] == '0' {
		return 0
	}
	digits, best := 0, 0
	for n, g := range groups {
		if n > 0 && strings.Contains(g.between, "+") {
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
