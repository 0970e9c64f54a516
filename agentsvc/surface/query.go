package surface

import (
	"net/http"
	"net/url"
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
		return agentsvc.NewInvalidError(field, "must be at most %d bytes of text", maxID)
	}
	for _, c := range id {
		if !unicode.IsPrint(c) {
			return agentsvc.NewInvalidError(field, "must hold no control characters")
		}
	}
	return nil
}

// checkURL refuses a path and a query that are no text: what they name is not there, and no database could be asked for it.
// A query that is not encoded as it should be is refused as well, since a filter that is lost leaves out nothing.
func checkURL(u *url.URL) error {
	if !isText(u.Path) {
		return errNoPath
	}
	if u.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return agentsvc.NewInvalidError("query", "is not encoded as a query is")
	}
	for name, values := range query {
		if !isText(name) || slices.ContainsFunc(values, func(v string) bool { return !isText(v) }) {
			return agentsvc.NewInvalidError("query", "must be text")
		}
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// CheckQuery refuses a query that holds other names than these, or one of them twice: a misspelled filter would leave out
// nothing, a misspelled dry_run would do what was only to be tried.
func CheckQuery(r *http.Request, names ...string) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	for name, values := range r.URL.Query() {
		switch {
		case len(names) == 0:
			return agentsvc.NewInvalidError("query", "%q is not known here: this call takes no query", name)
		case !slices.Contains(names, name):
			return agentsvc.NewInvalidError("query", "%q is not known here; there are %s", name, strings.Join(names, ", "))
		case len(values) > 1:
			return agentsvc.NewInvalidError(name, "is given more than once")
		}
	}
	return nil
}

// ParsePageSize reads page_size from the query, between 1 and most, usual where it is missing.
func ParsePageSize(r *http.Request, defaultSize, maximum int) (int, error) {
	text := r.URL.Query().Get("page_size")
	if text == "" {
		return defaultSize, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, agentsvc.NewInvalidError("page_size", "must be a number between 1 and %d", maximum)
	}
	return n, CheckPageSize(n, maximum)
}

// CheckPageSize refuses a size that is not between 1 and most.
func CheckPageSize(n, maximum int) error {
	if n < 1 || n > maximum {
		return agentsvc.NewInvalidError("page_size", "must be between 1 and %d", maximum)
	}
	return nil
}

// CheckHistoryLength refuses a number of messages that is negative.
func CheckHistoryLength(field string, n int) error {
	if n < 0 {
		return agentsvc.NewInvalidError(field, "must not be negative")
	}
	return nil
}
