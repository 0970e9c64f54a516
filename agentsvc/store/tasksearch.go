package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// maxSearchedTasks bounds the tasks whose messages one search looks at. The next search continues after them.
const maxSearchedTasks = 500

// foundTasks is the result of a search: the tasks that have the text, newest first, and the last task that was looked at
// with whether others follow it.
type foundTasks struct {
	ids     []string
	last    agentsvc.TaskID
	hasMore bool
}

// continuesAfter returns the task after which another search continues, "" if none does.
func (found foundTasks) continuesAfter() agentsvc.TaskID {
	if !found.hasMore {
		return ""
	}
	return found.last
}

// addCondition adds the condition that a task is one of those found.
func (found foundTasks) addCondition(where []string, args []any) ([]string, []any) {
	one := []string{"1 = 0"}
	for _, id := range found.ids {
		args = append(args, id)
		one = append(one, "t.id = $"+strconv.Itoa(len(args)))
	}
	return append(where, "("+strings.Join(one, " OR ")+")"), args
}

// searchTasks looks for f.Text in the messages of the newest tasks that where selects, at most [maxSearchedTasks] and
// until f.Limit have it. It looks at the message that opened a task and at the one of its present status, where the row
// is not larger than maxInlineBytes. Upper and lower case of ASCII letters are equal.
//
// The database compares with the rows as they are stored, which are JSON: that finds each row with the text, and some
// where the text is a name. What a row says is then decoded.
func (tas *Tasks) searchTasks(ctx context.Context, f TaskFilter, where []string, args []any) (found foundTasks, err error) {
	candidates := `(SELECT t.tenant, t.id, t.status_seq FROM task t WHERE ` + strings.Join(where, " AND ") + ` ORDER BY t.id DESC LIMIT ` + strconv.Itoa(maxSearchedTasks) + `)`
	var b db.Batch
	var looked int
	b.Query(func(r db.Row) error { return r.Scan(&looked, (*string)(&found.last)) }, `SELECT COUNT(*), COALESCE(MIN(c.id), '') FROM `+candidates+` AS c`, args...)
	text := foldCase(f.Text)
	b.Query(func(r db.Row) error {
		var id string
		var body []byte
		if err := r.Scan(&id, &body); err != nil {
			return err
		}
		if n := len(found.ids); n == f.Limit || n > 0 && found.ids[n-1] == id {
			return nil
		}
		var ev agentsvc.Event
		if err := decodeEvent(&ev, body); err != nil {
			return err
		}
		if hasText(ev, text) {
			found.ids = append(found.ids, id)
		}
		return nil
	}, fmt.Sprintf(`SELECT c.id, m.body FROM %s AS c JOIN event m ON m.tenant = c.tenant AND m.task = c.id AND (m.seq = 1 OR m.seq = c.status_seq)
		WHERE octet_length(m.body) <= %d AND LOWER(m.body) LIKE LOWER(CAST($%d AS TEXT)) ESCAPE '!' ORDER BY c.id DESC, m.seq`, candidates, maxInlineBytes, len(args)+1),
		append(args[:len(args):len(args)], likePattern(text))...)
	if err := tas.h.Do(ctx, &b); err != nil {
		return foundTasks{}, fmt.Errorf("search tasks: %w", err)
	}
	found.hasMore = looked == maxSearchedTasks
	return found, nil
}

// likePattern returns the pattern of LIKE for a text somewhere in a JSON row; ! escapes.
func likePattern(text string) string {
	encoded, err := encodeJSON(text, len(text))
	if err != nil {
		encoded = strconv.Quote(text) // a string always has a JSON form
	}
	encoded = strings.TrimSuffix(strings.TrimPrefix(encoded, `"`), `"`)
	return "%" + strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(encoded) + "%"
}

// hasText reports whether the message of ev contains text, which is folded, in a text or as data.
func hasText(ev agentsvc.Event, text string) bool {
	m := messageOf(ev)
	if m == nil {
		return false
	}
	for _, p := range m.Parts {
		switch {
		case p.Data != nil:
			if value, err := json.Marshal(p.Data.Value); err == nil && strings.Contains(foldCase(string(value)), text) {
				return true
			}
		case p.File == nil && strings.Contains(foldCase(p.Text), text):
			return true
		}
	}
	return false
}

// messageOf returns the message that ev has, alone or with a status; nil = none.
func messageOf(ev agentsvc.Event) *agentsvc.Message {
	if ev.Status != nil {
		return ev.Status.Message
	}
	return ev.Message
}

// foldCase returns s with its ASCII letters in lower case: SQLite knows no others.
func foldCase(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}
