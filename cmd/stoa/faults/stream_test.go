package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestF14Resume cuts the stream of each task at a random event and resumes it on another replica, several times over:
// what the client has heard in all is the log, without gap or duplicate.
func TestF14Resume(t *testing.T) {
	t.Parallel()
	tasks, least := 1200, int64(1000)
	if !full {
		tasks, least = 50, 1
	}
	r := chance(t)
	c := up(t, setup{nodes: 2, args: []string{"--log-level", "warn"}})
	cuts := make([]int, tasks)
	for i := range cuts {
		cuts[i] = 1 + r.IntN(4)
	}
	var resumed atomic.Int64
	together(8, func(i int) {
		for n := i; n < tasks; n += 8 {
			m := message{text: kindOf(n, "w"+itoa(n))}
			var heard []event
			id, last, body := "", int64(0), call("message:stream", m.params())
			for node := n; ; node++ {
				left := cuts[n]
				err := c.nodes[node%2].stream(t.Context(), m.path(), body, func(ev event) bool {
					id = ev.TaskID
					if ev.id == 0 {
						return true
					}
					heard = append(heard, ev)
					last = ev.id
					left--
					return left > 0
				})
				if err != nil && !errors.Is(err, errCut) {
					t.Errorf("%s: %v", m.text, err)
					return
				}
				if len(heard) > 0 && heard[len(heard)-1].ended() {
					break
				}
				resumed.Add(1)
				body = call("tasks/subscribe", map[string]any{"id": id, "after": last})
			}
			log, err := c.nodes[n%2].log(t.Context(), "", id)
			if err != nil {
				t.Errorf("%s: %v", m.text, err)
				return
			}
			if got, want := outline(heard), outline(log); got != want {
				t.Errorf("%s: the streams told\n%s\nand the log is\n%s", m.text, got, want)
			}
		}
	})
	if resumed.Load() < least {
		t.Errorf("only %d streams were resumed, want %d", resumed.Load(), least)
	}
	say(t, "%d tasks, whose streams were cut and resumed on the other process %d times", tasks, resumed.Load())
}

func kindOf(n int, word string) string { return fmt.Sprintf(kinds[n%len(kinds)], word) }

// outline is a stream as far as two tellings of it are the same: a telling that had a message's words one by one does
// not repeat them with the fact.
func outline(log []event) string {
	var b strings.Builder
	for _, ev := range log {
		fmt.Fprintf(&b, "%d %s", ev.id, ev.Status.State)
		if ev.ended() {
			fmt.Fprintf(&b, " %s", ev.text())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestF15Slow has many readers (STOA_FAULTS_READERS) take one byte a second of a long log. They are dropped, each with an
// event to go on from, and others' calls take no longer than before. It has the machine to itself: it judges how long they take.
func TestF15Slow(t *testing.T) {
	onlyFull(t)
	readers := int64(amount(t, "STOA_FAULTS_READERS", 1000, 10))
	c := up(t, setup{nodes: 1, args: []string{"--log-level", "warn"}})
	n := c.nodes[0]
	// One task with a log longer than what the server and both kernels take for a reader.
	big := strings.Repeat("x", 200_000)
	id := ""
	for i := range 20 {
		got, err := n.send(t.Context(), message{text: "ask " + big, task: id})
		c.must(err)
		if id = got.TaskID; got.Status.State != "input_required" {
			t.Fatalf("turn %d: the task is %s", i, got.Status.State)
		}
	}
	// calls has four callers talk until the time is up, and returns the p99 of how long they waited.
	calls := func(long time.Duration) time.Duration {
		var took []time.Duration
		var mu sync.Mutex
		over := time.Now().Add(long)
		together(4, func(int) {
			for time.Now().Before(over) {
				began := time.Now()
				if _, err := n.send(t.Context(), message{text: "hi"}); err != nil {
					t.Errorf("a call fails: %v", err)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
		return quantile(took, .99)
	}
	const coming, alone = 10 * time.Second, 20 * time.Second
	calls(5 * time.Second)
	without := []time.Duration{calls(alone)}
	ctx, stop := context.WithTimeout(t.Context(), 2*stall)
	defer stop()
	var open, dropped, resumable atomic.Int64
	var all sync.WaitGroup
	for i := range readers {
		all.Go(func() {
			wait(ctx, coming*time.Duration(i)/time.Duration(readers))
			last, over := c.sip(ctx, n, id, &open)
			if over {
				dropped.Add(1)
			}
			if last > 0 {
				resumable.Add(1)
			}
		})
	}
	// From the coming of the first until the server drops the last.
	during := calls(coming + stall)
	all.Wait()
	without = append(without, calls(alone))
	most, least := slices.Max(without), slices.Min(without)
	say(t, "p99 of others' calls: %v without slow readers, %v from the coming of the first until the last was dropped; %d readers, %d dropped, %d with an event to go on from",
		without, during, open.Load(), dropped.Load(), resumable.Load())
	switch {
	case float64(during) <= 1.2*float64(most):
	case float64(most) > 1.2*float64(least):
		leftOut(t, "others' p99: without any slow reader it is between %v and %v; this machine is too busy to judge", least, most)
	default:
		t.Errorf("others' p99 is %v with slow readers, without %v", during, without)
	}
	if dropped.Load() != readers || resumable.Load() != readers {
		t.Errorf("of %d readers %d were dropped and %d have an event to go on from", readers, dropped.Load(), resumable.Load())
	}
}

// stall is how long the server lets a client take over a piece of data.
const stall = 30 * time.Second

// sip subscribes to a task from its beginning and reads one byte a second until ctx ends, then whatever there is. It
// returns the last event that it heard whole, and whether the server had ended the stream before its last event.
func (c *cluster) sip(ctx context.Context, n *node, id string, open *atomic.Int64) (last int64, over bool) {
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	conn, err := small.Dial("tcp", strings.TrimPrefix(n.base, "http://"))
	if err != nil {
		c.Errorf("a reader: %v", err)
		return 0, false
	}
	defer conn.Close()
	body, _ := json.Marshal(call("tasks/subscribe", map[string]any{"id": id, "after": 0}))
	fmt.Fprintf(conn, "POST /agents/assistant HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		n.token, len(body), body)
	heard := make([]byte, 1024, 4096)
	if _, err := io.ReadFull(conn, heard); err != nil {
		c.Errorf("a reader: %v", err)
		return 0, false
	}
	open.Add(1)
	for one := make([]byte, 1); ctx.Err() == nil; wait(ctx, time.Second) {
		if _, err := conn.Read(one); err != nil {
			break
		}
		heard = append(heard, one...)
	}
	var silence net.Error
	for block := make([]byte, 64<<10); ; {
		_ = conn.SetReadDeadline(time.Now().Add(3 * time.Second))
		got, err := conn.Read(block)
		heard = append(heard, block[:got]...)
		if err != nil {
			over = !errors.As(err, &silence) || !silence.Timeout()
			break
		}
	}
	for piece := range bytes.SplitSeq(heard, []byte("id: ")) {
		if line, _, whole := bytes.Cut(piece, []byte("\n\n")); whole {
			_, _ = fmt.Sscanf(string(line[:min(len(line), 20)]), "%d", &last)
		}
	}
	return last, over
}
