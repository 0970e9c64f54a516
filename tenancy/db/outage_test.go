package db

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestOutageLog observes batches of a database that fails: one line when it stops to work and one when it works again,
// however often it fails meanwhile, and every error is marked.
func TestOutageLog(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("connect: %w", io.ErrUnexpectedEOF)
	full := &pgconn.PgError{Code: "53100"}
	type batch struct {
		after  time.Duration
		err    error
		writes bool
	}
	for _, c := range []struct {
		name    string
		batches []batch
		marked  int // errors that match an outage
		want    []string
	}{
		{"it works", []batch{{0, nil, true}, {time.Hour, nil, false}}, 0, nil},
		{"a mistake of the caller", []batch{{0, &pgconn.PgError{Code: "23505"}, true}, {0, context.Canceled, true}, {0, ErrClosed, true}}, 0, nil},
		{"refused", []batch{{0, refused, false}, {0, refused, true}, {time.Second, refused, false}, {2 * time.Second, nil, false}, {0, nil, true}}, 3, []string{"does not answer", "works again"}},
		{"it fails now and then", []batch{{0, refused, false}, {time.Millisecond, nil, true}, {time.Millisecond, refused, true}, {time.Millisecond, nil, true}}, 2, []string{"does not answer"}},
		{"a short deadline", []batch{{3 * time.Second, context.DeadlineExceeded, true}, {0, nil, true}, {3 * time.Second, context.DeadlineExceeded, true}}, 0, nil},
		{"frozen", []batch{{5 * time.Second, context.DeadlineExceeded, true}, {time.Second, context.DeadlineExceeded, false}, {time.Second, nil, false}}, 2, []string{"does not answer", "works again"}},
		{"full", []batch{{0, full, true}, {0, full, true}, {2 * time.Second, nil, false}, {0, nil, true}}, 2, []string{"disk of the database is full", "works again"}},
		{"full, and it only reads", []batch{{0, full, true}, {2 * time.Second, nil, false}}, 1, []string{"disk of the database is full"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				m := newOutageMonitor("", slog.New(slog.NewTextHandler(&log, nil)))
				marked := 0
				for _, b := range c.batches {
					time.Sleep(b.after)
					err := m.observe(b.err, b.writes)
					if !errors.Is(err, b.err) {
						t.Errorf("%v became %v", b.err, err)
					}
					if IsOutage(err) {
						marked++
					}
				}
				lines := strings.Split(strings.TrimSpace(log.String()), "\n")
				if log.Len() == 0 {
					lines = nil
				}
				for i, want := range c.want {
					if i >= len(lines) || !strings.Contains(lines[i], want) {
						t.Errorf("line %d does not say %q: %q", i, want, lines)
					}
				}
				if len(lines) != len(c.want) || marked != c.marked {
					t.Errorf("%d lines and %d marked errors, want %d and %d: %q", len(lines), marked, len(c.want), c.marked, lines)
				}
			})
		})
	}
}

// TestFullDisk asks a database whether it works while its disk is full and after there is space again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newOutageMonitor(t.TempDir(), slog.New(slog.DiscardHandler))
		if err := m.checkState(); err != nil {
			t.Errorf("before: %v", err)
		}
		d := &DB{outages: m}
		if free, ok := d.FreeBytes(); !ok || free <= 0 || d.Outage() != nil {
			t.Errorf("before: %d bytes are free (%t), outage %v", free, ok, d.Outage())
		}
		_ = m.observe(&pgconn.PgError{Code: "53100"}, true)
		time.Sleep(time.Hour)
		if err := d.Outage(); !errors.Is(err, ErrDiskFull) {
			t.Errorf("the outage is %v", err)
		}
		if err := m.checkState(); !errors.Is(err, ErrDiskFull) || !strings.Contains(err.Error(), "disk") {
			t.Errorf("full: %v", err)
		}
		_ = m.observe(nil, true)
		if err := m.checkState(); err != nil {
			t.Errorf("after a write: %v", err)
		}
		for _, unwatched := range []*DB{{}, {outages: newOutageMonitor("", slog.New(slog.DiscardHandler))}} {
			if _, ok := unwatched.FreeBytes(); ok || d.Outage() != nil || unwatched.Outage() != nil {
				t.Errorf("free bytes known: %t, outages %v and %v", ok, d.Outage(), unwatched.Outage())
			}
		}
	})
}

// TestOutageFolder checks that the monitor of a relative path has the whole path of its folder, which the log shows.
func TestOutageFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), "sqlite://stoa.db", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if d.outages.folder != folder {
		t.Errorf("the folder is %q, want %q", d.outages.folder, folder)
	}
}
