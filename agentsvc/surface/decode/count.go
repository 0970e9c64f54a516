package decode

import (
	"io"

	"stoa/agentsvc/surface/apierror"
)

// Bounds of the content of a JSON body. A value of a few bytes on the wire takes up to a few hundred bytes in memory,
// so values are counted in the bytes before anything is decoded. See docs/security.md.
const (
	MaxDepth   = 64      // levels of nesting
	MaxValues  = 100_000 // values in a body: members of objects and items of lists
	MaxList    = 10_000  // items of a list in one of the outer listLevels levels
	listLevels = 4       // levels in which messages and their parts are, in every protocol
)

// CountValues returns how many values a JSON body has, and an error if these are too many or nested too deeply; then it
// stopped counting there. It does not decode or validate; decoding refuses a body that is not JSON.
func CountValues(body []byte) (values int, err error) {
	var c ValueCounter
	err = c.countBytes(body)
	return c.TotalValues(), err
}

// ValueCounter counts the values of a JSON text that comes in pieces: one for each opening bracket (its first item) and
// one for each comma (the next item). An empty object or list counts as if it had one item. Only strings need to be
// recognized for that, which makes it much cheaper than decoding.
type ValueCounter struct {
	// values is the number of values, without the outermost.
	values int
	// depth is the number of open brackets; text that is not JSON can make it negative.
	depth int
	// items is the number of items of the open object or list at each of the outer levels.
	items [listLevels + 1]int
	// lists says at each of these levels whether that is a list; MaxList is for lists only.
	lists [listLevels + 1]bool
	// inString says that a string is open; escaped that its next byte follows a backslash.
	inString bool
	escaped  bool
}

// TotalValues returns how many values were counted, the outermost included.
func (c *ValueCounter) TotalValues() int { return c.values + 1 }

// countBytes counts the next piece of the text. It returns an error as soon as a bound is exceeded.
func (c *ValueCounter) countBytes(b []byte) error {
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
			if c.depth++; c.depth > MaxDepth {
				return apierror.NewTooDeepError(MaxDepth)
			}
			if c.depth > 0 && c.depth <= listLevels {
				c.items[c.depth], c.lists[c.depth] = 1, b[i] == '['
			}
		case '}', ']':
			c.depth--
			continue
		case ',':
			if c.depth > 0 && c.depth <= listLevels {
				if c.items[c.depth]++; c.lists[c.depth] && c.items[c.depth] > MaxList {
					return apierror.NewTooManyError("items in a list", MaxList)
				}
			}
		default:
			continue
		}
		if c.values++; c.TotalValues() > MaxValues {
			return apierror.NewTooManyError("JSON values", MaxValues)
		}
	}
	return nil
}

// skipString returns the index of the last byte of b that belongs to the open string, and clears inString if the string
// ends.
func (c *ValueCounter) skipString(b []byte) int {
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

// CountingReader counts the values of a JSON body while it is read, so that a body with too many is not read to its end.
type CountingReader struct {
	io.Reader
	Counter ValueCounter
	// refused is the error for which reading stopped, nil if the content is within the bounds.
	Refused error
}

// Read implements [io.Reader]. It returns refused instead of the reader's error.
func (c *CountingReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if c.Refused = c.Counter.countBytes(b[:n]); c.Refused != nil {
		return n, c.Refused
	}
	return n, err
}
