package task

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
)

// TestYieldEvents: taken events and the log's facts come out as one stream in order, whichever source had an event
// first.
func TestYieldEvents(t *testing.T) {
	fact := func(seq int64, message agentsvc.MessageID) agentsvc.Event {
		return agentsvc.Event{Seq: seq, Message: &agentsvc.Message{ID: message}}
	}
	end := func(seq int64, message agentsvc.MessageID) agentsvc.Event {
		return agentsvc.Event{Seq: seq, Status: &agentsvc.Status{State: agentsvc.Completed, Message: &agentsvc.Message{ID: message}}}
	}
	chunk := func(after int64, message agentsvc.MessageID, offset int, text string) agentsvc.Event {
		return agentsvc.Event{Chunk: &agentsvc.Chunk{Message: message, Offset: offset, Text: text, After: after}}
	}
	type events = []agentsvc.Event
	for name, c := range map[string]struct {
		news, facts events
		want        []string
		rest        int
		over        bool
	}{
		"nothing":                               {nil, nil, nil, 0, false},
		"facts":                                 {nil, events{fact(1, "a"), fact(2, "b")}, []string{"1", "2"}, 0, false},
		"news":                                  {events{fact(1, "a"), chunk(1, "b", 0, "x"), fact(2, "b")}, nil, []string{"1", "b:x", "2"}, 0, false},
		"both know":                             {events{fact(1, "a"), fact(2, "b")}, events{fact(1, "a"), fact(2, "b")}, []string{"1", "2"}, 0, false},
		"a chunk before the fact that ends it":  {events{chunk(1, "b", 0, "x"), end(2, "b")}, events{fact(1, "a"), end(2, "b")}, []string{"1", "b:x", "2"}, 0, true},
		"chunks of two messages":                {events{chunk(0, "a", 0, "x"), fact(1, "a"), chunk(1, "b", 0, "y")}, events{fact(1, "a"), fact(2, "b")}, []string{"a:x", "1", "b:y", "2"}, 0, false},
		"a chunk of what is over":               {events{chunk(0, "a", 0, "x")}, nil, []string{"a:x"}, 0, false},
		"chunks that follow each other":         {events{chunk(0, "a", 0, "x"), chunk(0, "a", 1, "y")}, nil, []string{"a:xy"}, 0, false},
		"a chunk of which some was had":         {events{chunk(0, "a", 0, "xy"), chunk(0, "a", 1, "yz")}, nil, []string{"a:xy", "a:z"}, 0, false},
		"facts are missing":                     {events{chunk(0, "a", 0, "x"), fact(3, "c"), chunk(3, "d", 0, "y")}, events{fact(1, "a")}, []string{"a:x", "1"}, 2, false},
		"facts before a chunk are missing":      {events{chunk(2, "b", 0, "x")}, nil, nil, 1, false},
		"one of them is":                        {events{chunk(2, "b", 0, "x")}, events{fact(1, "a")}, []string{"1"}, 1, false},
		"none of them is":                       {events{chunk(2, "b", 0, "x")}, events{fact(1, "a"), fact(2, "c")}, []string{"1", "2", "b:x"}, 0, false},
		"nothing comes behind the end":          {events{end(1, "a"), chunk(1, "b", 0, "x")}, events{end(1, "a")}, []string{"1"}, 0, true},
		"the log knows of the end, news do not": {events{chunk(0, "a", 0, "x")}, events{end(1, "a")}, []string{"a:x", "1"}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			cur := cursor{sentBytes: map[agentsvc.MessageID]int{}}
			news := joinChunks(c.news)
			take := func() (evs []agentsvc.Event) { evs, news = news, nil; return evs }
			rest, more := cur.yieldEvents(nil, take, c.facts, func(ev agentsvc.Event, _ error) bool {
				if ch := ev.Chunk; ch != nil {
					got = append(got, string(ch.Message)+":"+ch.Text)
				} else {
					got = append(got, fmt.Sprint(ev.Seq))
				}
				return true
			})
			if diff := cmp.Diff(c.want, got); diff != "" || len(rest) != c.rest || more == c.over {
				t.Errorf("rest %d, more %v\n%s", len(rest), more, diff)
			}
		})
	}
}
