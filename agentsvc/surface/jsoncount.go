package surface

import (
	"fmt"
	"io"
	"net/http"
)

// Bounds of the content of a JSON body. A value of a few bytes on the wire takes up to a few hundred bytes in memory,
// so values are counted in the bytes before anything is decoded. See docs/security.md.
const (
	maxDepth   = 64      // levels of nesting
	maxValues  = 100_000 // values in a body: members of objects and items of lists
	maxList    = 10_000  // items of a list in one of the outer listLevels levels
	listLevels = 4       // levels in which messages and their parts are, in every protocol
)

// NewTooManyError returns the error for a body with more than allowed of what.
func NewTooManyError(what string, allowed int) error {
	return &responseError{
		code: ResourceExhausted, status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("the body holds too many %s, %d are allowed", what, allowed),
	}
}

// countJSON returns how many values a JSON body has, and an error if these are too many or nested too deeply; then it
// stopped counting there. It does not decode or validate; decoding refuses a body that is not JSON.
func countJSON(body []byte) (values int, err error) {
	var c jsonCounter
	err = c.countBytes(body)
	return c.totalValues(), err
}

// jsonCounter counts the values of a JSON text that comes in pieces: one for each opening bracket (its first item) and
// one for each comma (the next item). An empty object or list counts as if it had one item. Only strings need to be
// recognized for that, which makes it much cheaper than decoding.
type jsonCounter struct {
	// values is the number of values, without the outermost.
	values int
	// depth is the number of open brackets; text that is not JSON can make it negative.
	depth int
	// items is the number of items of the open object or list at each of the outer levels.
	items [listLevels + 1]int
	// lists says at each of these levels whether that is a list; maxList is for lists only.
	lists [listLevels + 1]bool
	// inString says that a string is open; escaped that its next byte follows a backslash.
	inString bool
	escaped  bool
}

// totalValues returns how many values were counted, the outermost included.
func (c *jsonCounter) totalValues() int { return c.values + 1 }

// countBytes counts the next piece of the text. It returns an error as soon as a bound is exceeded.
func (c *jsonCounter) countBytes(b []byte) error {
	for i := 0; i < len(b); i++ {
		if c.inString {
			i += c.skipString(b[i:])
			continue
		}
		switch b[i] {
		case '"':
			c.inString = true
			continue
		case '{', '[':
			if c.depth++; c.depth > maxDepth {
				return NewInvalidRequestError(fmt.Sprintf("the JSON is nested more than %d levels deep", maxDepth))
			}
			if c.depth > 0 && c.depth <= listLevels {
				c.items[c.depth], c.lists[c.depth] = 1, b[i] == '['
			}
		case '}', ']':
			c.depth--
			continue
		case ',':
			if c.depth > 0 && c.depth <= listLevels {
				if c.items[c.depth]++; c.lists[c.depth] && c.items[c.depth] > maxList {
					return NewTooManyError("items in a list", maxList)
				}
			}
		default:
			continue
		}
		if c.values++; c.totalValues() > maxValues {
			return NewTooManyError("JSON values", maxValues)
		}
	}
	return nil
}

// skipString returns the index of the last byte of b that belongs to the open string, and clears inString if the string
// ends.
func (c *jsonCounter) skipString(b []byte) int {
	for i, x := range b {
		switch {
		case c.escaped:
			c.escaped = false
		case x == '\\':
			c.escaped = true
		case x == '"':
			c.inString = false
			return i
		}
	}
	return len(b) - 1
}

// countedBody counts the values of a JSON body while it is read, so that a body with too many is not read to its end.
type countedBody struct {
	io.Reader
	counter jsonCounter
	// refused is the error for which reading stopped, nil if the content is within the bounds.
	refused error
}

// Read implements [io.Reader]. It returns refused instead of the reader's error.
func (c *countedBody) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if c.refused = c.counter.countBytes(b[:n]); c.refused != nil {
		return n, c.refused
	}
	return n, err
}
