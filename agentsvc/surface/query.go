package surface

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"stoa/agentsvc"
)

const maxID = 256

// CheckID refuses what cannot be an identifier: more than 256 bytes, or characters that do not print. "" is none.
func CheckID(field, id string) error {
	if len(id) > maxID || !utf8.ValidString(id) {
		return agentsvc.Invalid(field, "must be at most %d bytes of text", maxID)
	}
	for _, c := range id {
		if !unicode.IsPrint(c) {
			return agentsvc.Invalid(field, "must hold no control characters")
		}
	}
	return nil
}

// CheckQuery refuses a query that holds other names than these.
func CheckQuery(r *http.Request, names ...string) error {
	for name := range r.URL.Query() {
		if !slices.Contains(names, name) {
			return agentsvc.Invalid("query", "%q is not known here; there are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// PageSize reads page_size from the query, between 1 and most, usual where it is missing.
func PageSize(r *http.Request, usual, most int) (int, error) {
	text := r.URL.Query().Get("page_size")
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, agentsvc.Invalid("page_size", "must be a number between 1 and %d", most)
	}
	return n, CheckPageSize(n, most)
}

// CheckPageSize refuses a size that is not between 1 and most.
func CheckPageSize(n, most int) error {
	if n < 1 || n > most {
		return agentsvc.Invalid("page_size", "must be between 1 and %d", most)
	}
	return nil
}

// CheckLength refuses a number of messages that is negative.
func CheckLength(field string, n int) error {
	if n < 0 {
		return agentsvc.Invalid(field, "must not be negative")
	}
	return nil
}
