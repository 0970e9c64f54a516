package store

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// maxOpening bounds [agentsvc.Task.Opening], in characters.
const maxOpening = 200

// queryOpenings adds to b the read of the openings of tasks. A task has none if its message is larger than maxInlineBytes, has no
// text, or was deleted with its events.
func (tas *Tasks) queryOpenings(b *db.Batch, tasks []taskReading) {
	places := make(map[string]*taskReading, len(tasks))
	args := []any{tas.tenant}
	var ids []string
	for i := range tasks {
		id := string(tasks[i].ID)
		places[id] = &tasks[i]
		args = append(args, id)
		ids = append(ids, "$"+strconv.Itoa(len(args)))
	}
	b.Query(func(r db.Row) error {
		var id string
		var body []byte
		if err := r.Scan(&id, &body); err != nil {
			return err
		}
		var ev agentsvc.Event
		if err := decodeEvent(&ev, body); err != nil {
			return err
		}
		if t := places[id]; t != nil {
			t.Opening = openingOf(ev)
		}
		return nil
	}, fmt.Sprintf(`SELECT task, body FROM event WHERE tenant = $1 AND seq = 1 AND task IN (%s) AND octet_length(body) <= %d`, strings.Join(ids, ", "), maxInlineBytes), args...)
}

// openingOf returns the beginning of the first text of the message of ev. It is a copy: the message does not stay in memory with it.
func openingOf(ev agentsvc.Event) string {
	m := messageOf(ev)
	if m == nil {
		return ""
	}
	for _, p := range m.Parts {
		if text := strings.TrimSpace(p.Text); p.File == nil && p.Data == nil && text != "" {
			return strings.Clone(firstCharacters(text, maxOpening))
		}
	}
	return ""
}

// firstCharacters returns the first n characters of s.
func firstCharacters(s string, n int) string {
	end := 0
	for range n {
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
	}
	return s[:end]
}
