package decode

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
)

// maxID bounds an identifier that a client chooses, in bytes.
const maxID = 256

// CheckID returns an error for an identifier of more than maxID bytes or with characters that cannot be printed. "" is
// no identifier and is accepted.
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

// CheckURL returns an error for a path or a query that is not text: invalid UTF-8 or a NUL byte, which PostgreSQL
// refuses in every parameter. A query that is not encoded correctly is an error too: net/http would drop its
// parameters, and a filter that is dropped would select everything.
func CheckURL(u *url.URL) error {
	if !isText(u.Path) {
		return apierror.ErrNoPath
	}
	if u.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return agentsvc.NewInvalidError("query", "is not a valid URL query")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !isText(name) {
			return agentsvc.NewInvalidError("query", "has a name that is not text")
		}
		if slices.ContainsFunc(query[name], func(v string) bool { return !isText(v) }) {
			return agentsvc.NewInvalidError(cmp.Or(name, "query"), "must be text")
		}
	}
	return nil
}

// isText reports whether s can be stored as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// CheckQuery returns an error for a query parameter that is not one of names, or that is given twice. A misspelled
// filter would select everything, and a misspelled dry_run would change what was only to be tried.
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

// ParseBool returns the boolean name of the query, false if it is missing. An empty value is refused: a client that sends
// ?dry_run does not mean that the change is to be made.
func ParseBool(query url.Values, name string) (bool, error) {
	if !query.Has(name) {
		return false, nil
	}
	b, err := strconv.ParseBool(query.Get(name))
	if err != nil {
		return false, agentsvc.NewInvalidError(name, "must be true or false")
	}
	return b, nil
}

// ParsePageSize returns page_size of the query, from 1 to maximum, or defaultSize if it is missing.
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

// CheckPageSize returns an error for a page size that is not from 1 to maximum.
func CheckPageSize(n, maximum int) error {
	if n < 1 || n > maximum {
		return agentsvc.NewInvalidError("page_size", "must be between 1 and %d", maximum)
	}
	return nil
}

// ParseHistoryLength returns history_length of the query, nil if it is missing.
func ParseHistoryLength(r *http.Request) (*int, error) {
	text := r.URL.Query().Get("history_length")
	if text == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return nil, agentsvc.NewInvalidError("history_length", "must be a number")
	}
	return &n, CheckHistoryLength("history_length", n)
}

// CheckHistoryLength returns an error for a negative number of messages.
func CheckHistoryLength(field string, n int) error {
	if n < 0 {
		return agentsvc.NewInvalidError(field, "must not be negative")
	}
	return nil
}

// ParseAfter returns the sequence after which a client wants to continue, nil if it starts from the current state. The
// Last-Event-ID header wins over given, which comes from the request itself: a browser that reconnects repeats the
// request unchanged and adds the header. It returns an error with [agentsvc.CodeInvalid] for a negative or malformed
// sequence.
func ParseAfter(r *http.Request, given *int64) (*int64, error) {
	if given != nil && *given < 0 {
		return nil, agentsvc.NewInvalidError("after", "must be the id of an event")
	}
	last := strings.TrimSpace(r.Header.Get("Last-Event-ID"))
	if last == "" {
		return given, nil
	}
	n, err := strconv.ParseInt(last, 10, 64)
	if err != nil || n < 0 {
		return nil, agentsvc.NewInvalidError("Last-Event-ID", "must be the id of an event")
	}
	return &n, nil
}

// ParseTime parses a time in RFC 3339 or a day, which means its start in UTC. An empty text is defaultTime. The
// error names field.
func ParseTime(field, text string, defaultTime time.Time) (time.Time, error) {
	if text == "" {
		return defaultTime, nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, agentsvc.NewInvalidError(field, "must be a time such as 2026-11-01T00:00:00Z, or a day such as 2026-11-01")
}

// ParseState returns the state of a name such as working or TASK_STATE_WORKING. An empty or unspecified name is "",
// which means no filter. Other mixtures of upper and lower case are refused.
func ParseState(name string) (agentsvc.State, error) {
	plain, enum := strings.CutPrefix(name, "TASK_STATE_")
	s := agentsvc.State(strings.ToLower(plain))
	switch {
	case name == "", enum && plain == "UNSPECIFIED":
		return "", nil
	case !s.IsValid(), enum && plain != strings.ToUpper(plain), !enum && plain != string(s):
		return "", agentsvc.NewInvalidError("status", "unknown state %.40q: one such as working or TASK_STATE_WORKING", name)
	}
	return s, nil
}
