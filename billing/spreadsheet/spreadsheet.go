package spreadsheet

import (
	"strconv"
	"strings"
)

// EscapeFormula prefixes a text that a spreadsheet would evaluate as a formula with an apostrophe. Names that tenants
// choose are in these files. Numbers such as -1.50 stay as they are.
func EscapeFormula(s string) string {
	if s == "" || !strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return s
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return s
	}
	return "'" + s
}
