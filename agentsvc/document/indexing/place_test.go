package indexing_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/indexing"
	"stoa/agentsvc/document/source"
)

// funcSource is a source whose listing is a function.
type funcSource struct {
	listedSource
	list func(ctx context.Context) error
}

// List implements [source.Source].
func (s *funcSource) List(ctx context.Context) iter.Seq2[source.Item, error] {
	return func(yield func(source.Item, error) bool) {
		if err := s.list(ctx); err != nil {
			yield(source.Item{}, err)
		}
	}
}

// TestSlowSourceKeepsNoSlot checks that apps whose sources do not answer do not keep the documents of another app from
// their turn.
func TestSlowSourceKeepsNoSlot(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		listing := make(chan struct{}, 8)
		f.setStore(acme, withSource(newStore(1), &funcSource{list: func(ctx context.Context) error {
			listing <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}}))
		f.startIndexer(func(o *indexing.Options) { o.Passes, o.Slice = 1, 20*time.Millisecond })
		<-listing
		f.setStore(globex, newStore(1))
		f.put(globex, "a", "text")
		f.waitIndexed(globex, 1)
	})
}

// TestListingEnds checks that a listing has a bound, after which the store says why its documents are as they were.
func TestListingEnds(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		f.setStore(acme, withSource(newStore(1), &funcSource{list: func(ctx context.Context) error {
			<-ctx.Done()
			return source.Errorf("no answer in time")
		}}))
		f.startIndexer(func(o *indexing.Options) { o.Bounds.List = 10 * time.Millisecond })
		f.waitFor("the store names the bound", func() bool {
			return strings.Contains(f.status(acme).Error, "the listing of the source did not end within 10ms")
		})
	})
}

// TestStuckPassIsAbandoned checks that neither the stop of the process nor another app waits for a pass that does not end
// with its context.
func TestStuckPassIsAbandoned(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		listing, release := make(chan struct{}, 1), make(chan struct{})
		ended := make(chan struct{})
		f.setStore(acme, withSource(newStore(1), &funcSource{list: func(context.Context) error {
			listing <- struct{}{}
			<-release
			close(ended)
			return source.Errorf("late")
		}}))
		stop := f.startIndexer(func(o *indexing.Options) { o.Passes, o.Slice, o.Bounds.Abandon = 1, time.Hour, 10*time.Millisecond })
		<-listing
		stop()
		close(release)
		<-ended
	})
}

// TestPanicIsContained checks that a panic in what reads an app's data fails the document or holds the pass, and that other
// apps are indexed.
func TestPanicIsContained(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		s := newStore(1)
		s.Read = func(ctx context.Context, name, mediaType string, body io.Reader) (document.Content, error) {
			if name == "bad" {
				panic("index out of range")
			}
			return readText(ctx, name, mediaType, body)
		}
		f.setStore(acme, s)
		f.setStore(globex, withSource(newStore(1), &funcSource{list: func(context.Context) error { panic("index out of range") }}))
		f.put(acme, "bad", "text")
		f.put(acme, "good", "text")
		f.startIndexer()
		f.waitIndexed(acme, 1)
		const want = "internal fault: the server's log has a line about it"
		if d := f.get(acme, "bad"); d.State != document.Failed || d.Error != want {
			f.Errorf("got %s: %s", d.State, d.Error)
		}
		f.waitFor("the store names the fault", func() bool { return f.status(globex).Error == want })
	})
}

// TestListingIsBounded checks that what a listing keeps has a bound, whichever part of a document it is in.
func TestListingIsBounded(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		f.setStore(acme, withSource(newStore(1), &manyItems{}))
		f.startIndexer()
		f.waitFor("the store names the bound", func() bool { return strings.Contains(f.status(acme).Error, "have more than 67108864 bytes") })
	})
}

// manyItems is a source of documents with long lists of readers.
type manyItems struct{ listedSource }

// List implements [source.Source].
func (*manyItems) List(context.Context) iter.Seq2[source.Item, error] {
	names := []string{strings.Repeat("r", 1<<20)}
	return func(yield func(source.Item, error) bool) {
		for i := range 100 {
			if !yield(source.NewFailedItem(fmt.Sprint(i), source.Errorf("unread")), nil) {
				return
			}
			item := source.NewFailedItem(fmt.Sprint("r", i), source.Errorf("unread"))
			item.Access = document.Access{Roles: names}
			if !yield(item, nil) {
				return
			}
		}
	}
}
