package surface

import (
	"fmt"
	"io"
	"net/http"
)

// Bounds of what a body may hold. A value of JSON that is a few bytes on the wire takes up to a few hundred in memory, so values
// are counted in the bytes, before anything is made of them. Clients stay far below.
const (
	maxDepth   = 64      // levels of JSON in each other
	maxValues  = 100_000 // values of JSON in a body, members of objects and items of lists alike
	maxList    = 10_000  // items of a list that stands in one of the outer levels
	listLevels = 4       // levels: that is where messages and their parts stand, in every dialect
)

// NewTooManyError is the refusal of a body that holds more of something than is allowed.
func NewTooManyError(what string, allowed int) error {
	return &responseError{
		code: ResourceExhausted, status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("the body holds too many %s, %d are allowed", what, allowed),
	}
}

// countJSON returns how many values a body in JSON has, at least, and refuses one with too many of them, or nested too deeply. It
// reads bytes and makes nothing of them; a body that is no JSON is refused later.
func countJSON(body []byte) (values int, err error) {
	var c jsonCounter
	err = c.countBytes(body)
	return c.totalValues(), err
}

// jsonCounter counts the values of JSON that comes in pieces.
type jsonCounter struct {
	values   int
	depth    int
	items    [listLevels + 1]int  // of what is open, by its level
	lists    [listLevels + 1]bool // whether that is a list
	inString bool
	escaped  bool // the next byte of the string stands for itself
}

// totalValues returns how many values there were, the outermost included.
func (c *jsonCounter) totalValues() int { return c.values + 1 }

// countBytes counts the next piece. It returns why what came so far is refused.
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

// skipString returns where in b the last byte stands that belongs to the string which is open.
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

// countedBody is a body in JSON whose values are counted as it arrives: one that is refused is not read to its end.
type countedBody struct {
	io.Reader
	counter jsonCounter
	refused error
}

func (c *countedBody) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if c.refused = c.counter.countBytes(b[:n]); c.refused != nil {
		return n, c.refused
	}
	return n, err
}
