package extract_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/extract"
	"stoa/agentsvc/sandbox"
)

// longTimeout is a time limit that no helper of a test reaches.
const longTimeout = time.Minute

// runHostileHelper is the main of a helper that a file has taken over: the value of its variable says what it does.
func runHostileHelper(variable string) {
	write := func(text string) { _, _ = os.Stdout.WriteString(text) }
	switch variable {
	case "hang":
		for {
			time.Sleep(time.Hour)
		}
	case "spin":
		write(`{"section":{"Text":"a"}}`)
		for { //nolint:staticcheck // a reader that spins is what the test is about
		}
	case "crash":
		panic("crash")
	case "exit":
		write(`{"section":{"Text":"a"}}`)
		os.Exit(0)
	case "memory":
		extract.LimitProcess()
		var all [][]byte
		for {
			block := make([]byte, 8<<20)
			for i := range block {
				block[i] = 1
			}
			all = append(all, block)
			if len(all) > 1_000 {
				os.Exit(0)
			}
		}
	case "recursion":
		extract.LimitProcess()
		var recurse func(n int) int
		recurse = func(n int) int { return recurse(n+1) + n }
		write(strings.Repeat(" ", recurse(0)&1))
	case "flood":
		for {
			write(`{"section":{"Text":"` + strings.Repeat("a", 1<<20) + `"}}`)
			_, _ = os.Stderr.WriteString(strings.Repeat("x", 1<<16))
		}
	case "endless line":
		for {
			write(`{"section":{"Text":"` + strings.Repeat("a", 1<<20))
			for {
				write(strings.Repeat("a", 1<<20))
			}
		}
	case "garbage":
		write("hello\n")
		os.Exit(0)
	case "unknown problem":
		write(`{"problem":{"problem":"your fault","message":"a"}}`)
		os.Exit(0)
	case "lies":
		write(`{"section":{"Text":"a\u0000\r\nb","Place":{"Page":-1,"Line":-5,"Heading":"x\ny"}}}{"end":{"title":"a\u0007\nb","media_type":"text/plain"}}`)
		for {
			write(" ")
		}
	}
}

// newReader returns a reader whose helpers are this test's binary.
func newReader(t *testing.T) *extract.Reader {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := extract.NewReader(executable, sandbox.NewHost(executable, sandbox.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRead checks that a helper returns what a reader in the same process does.
func TestRead(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	t.Logf("helpers run as another user: %v", r.CanRunUntrusted())
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"a.docx", buildDOCX(t, wordParagraph("berschrift1", "Warranty")+wordParagraph("", "Two \u2028years &lt;&amp;&gt; \\"))},
		{"a.pptx", buildPPTX(t)}, {"a.xlsx", buildXLSX(t)}, {"a.odt", buildODT(t, "")},
		{"a.pdf", buildPages("", "BT /F1 12 Tf (text) Tj ET")}, {"a.md", []byte("# a\nb\n# c\nd")},
		{"a.txt", []byte(strings.Repeat("\"quotes\" and\n", 100_000))},
	} {
		want, err := extract.ReadContent(f.name, "", f.data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Read(t.Context(), "", f.name, "", strings.NewReader(string(f.data)))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", f.name, err, diff)
		}
	}
}

// TestPlainText checks that a helper reads what is not plain text, or long, and nothing else.
func TestPlainText(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	started := 0
	r.OnStart(func(app string, _ *os.Process) {
		if app != "" { // else it is the test whether a helper may run as another user
			started++
		}
	})
	for _, tt := range []struct {
		name, mediaType, text string
		helpers               int
	}{
		{"a.txt", "", "two\r\nlines", 0},
		{"a", "text/plain; charset=utf-8", "Grüße", 0},
		{"main.go", "text/plain", "package main", 0},
		{"a.txt", "", "BMW builds cars", 0}, // not an image
		{"a.txt", "", " \n", 0},
		{"a.md", "text/plain", "# text", 1},
		{"a", "text/html", "<p>text</p>", 1},
		{"a", "", "text", 1},
		{"a.pdf", "text/plain", "text", 1},
		{"a.txt", "", "%PDF-1.7 text", 1},
		{"a.txt", "", "PK\x03\x04", 1},
		{"a.txt", "", "text\x00", 1},
		{"a.txt", "", "caf\xe9", 1},
		{"a.txt", "", strings.Repeat("text ", 300_000), 1},
	} {
		started = 0
		want, wantErr := extract.ReadContent(tt.name, tt.mediaType, []byte(tt.text))
		got, err := r.Read(t.Context(), "acme", tt.name, tt.mediaType, strings.NewReader(tt.text))
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Errorf("%s %.20q: %v, not %v (-want +got)\n%s", tt.name, tt.text, err, wantErr, diff)
		}
		if started != tt.helpers {
			t.Errorf("%s %q %.20q: %d helpers, not %d", tt.name, tt.mediaType, tt.text, started, tt.helpers)
		}
	}
}

// TestReadAsOtherUser checks that helpers of a server that is root run as another user, if that user may execute the
// server's executable. The binary of a test is in a folder that only root may enter; a copy is not.
func TestReadAsOtherUser(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "stoa-extract-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	binary, err := os.ReadFile(executable)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(folder, "stoa")
	if err := errors.Join(os.WriteFile(copied, binary, 0o755), os.Chmod(folder, 0o755)); err != nil {
		t.Fatal(err)
	}
	host := sandbox.NewHost(executable, sandbox.Options{})
	if err := host.CheckUntrusted(); err != nil {
		t.Skipf("ATTENTION, NOTHING IS PROVED HERE: %v", err)
	}
	r, err := extract.NewReader(copied, host)
	if err != nil {
		t.Fatal(err)
	}
	if !r.CanRunUntrusted() {
		t.Error("helpers run as the server's user")
	}
	content, err := r.Read(t.Context(), "", "a.md", "", strings.NewReader("text"))
	if err != nil || content.Text() != "text\n" {
		t.Errorf("%q, %v", content.Text(), err)
	}
	r.OnStart(func(_ string, p *os.Process) {
		if os.Geteuid() != 0 {
			return
		}
		eventually(t, func() bool {
			return slices.ContainsFunc(listHelper(t, p.Pid), func(status string) bool {
				return strings.Contains(status, "\nUid:\t65534\t") // the number of the default user of untrusted programs
			})
		})
		_ = p.Kill()
	})
	r.SetHelperVariable("hang")
	_, err = r.Read(t.Context(), "", "a.md", "", strings.NewReader("text"))
	requireProblem(t, err, extract.Crashed)
}

// listHelper returns the status of each process of a helper: of the one that was started and of those below it, which
// bubblewrap has.
func listHelper(t *testing.T, started int) (statuses []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	byParent := map[string][]string{} // the ids of processes
	byID := map[string]string{}
	for _, file := range files {
		status, err := os.ReadFile(file)
		_, parent, found := strings.Cut(string(status), "\nPPid:\t")
		if err != nil || !found {
			continue // it has ended
		}
		id := filepath.Base(filepath.Dir(file))
		parent, _, _ = strings.Cut(parent, "\n")
		byID[id], byParent[parent] = string(status), append(byParent[parent], id)
	}
	for open := []string{strconv.Itoa(started)}; len(open) > 0; open = open[1:] {
		statuses, open = append(statuses, byID[open[0]]), append(open, byParent[open[0]]...)
	}
	return statuses
}

// eventually polls until done returns true, for at most a minute.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(longTimeout); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("it did not happen")
			return
		}
	}
}

// TestReadProblems checks that problems of files pass from the helper, and that the server reads no larger file.
func TestReadProblems(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	for _, tt := range hostileFiles(t) {
		switch tt.name { // one of each way
		case "no bytes", "encrypted PDF", "scanned PDF", "bomb", "PDF with a loop of pages", "deep document", "too much text", "too large":
			_, err := r.Read(t.Context(), "", tt.file, "", strings.NewReader(string(tt.data)))
			requireProblem(t, err, tt.want)
		}
	}
	_, err := r.Read(t.Context(), "", "a.txt", "", endless{})
	requireProblem(t, err, extract.TooLarge)
	broken := errors.New("the source is gone")
	if _, err := r.Read(t.Context(), "", "a.txt", "", failing{broken}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// endless is a file that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// failing is a file whose source breaks.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestHostileHelpers checks that a helper that was taken over costs one file an error.
func TestHostileHelpers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		variable string
		timeout  time.Duration
		want     extract.Problem // "" = an error of the server
	}{
		{"hang", 300 * time.Millisecond, extract.TooSlow},
		{"spin", 300 * time.Millisecond, extract.TooSlow},
		{"crash", longTimeout, extract.Crashed},
		{"exit", longTimeout, extract.Crashed},
		{"memory", longTimeout, extract.TooComplex},
		{"recursion", longTimeout, extract.TooComplex},
		{"flood", longTimeout, extract.TooLarge},
		{"endless line", longTimeout, extract.TooLarge},
		{"garbage", longTimeout, extract.Crashed},
		{"unknown problem", longTimeout, extract.Crashed},
	}
	for _, tt := range tests {
		t.Run(tt.variable, func(t *testing.T) {
			t.Parallel()
			r := newReader(t)
			r.SetHelper(tt.variable, tt.timeout)
			_, err := r.Read(t.Context(), "", "a.md", "", strings.NewReader("text"))
			requireProblem(t, err, tt.want)
		})
	}
}

// TestLyingHelper checks that the server checks what a helper returns, and does not wait for more.
func TestLyingHelper(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	r.SetHelper("lies", longTimeout)
	got, err := r.Read(t.Context(), "", "a.md", "", strings.NewReader("text"))
	want := document.Content{Title: "a b", MediaType: "text/plain", Sections: []document.Section{{Text: "a\nb", Place: document.Place{Heading: "x y"}}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// TestKilledHelper checks that a helper that is killed from outside costs one file an error.
func TestKilledHelper(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	r.SetHelper("hang", longTimeout)
	r.OnStart(func(_ string, p *os.Process) { _ = p.Kill() })
	_, err := r.Read(t.Context(), "", "a.md", "", strings.NewReader("text"))
	requireProblem(t, err, extract.Crashed)
}

// TestReadCancelled checks that the end of the context ends the helper, also one that waits for its turn.
func TestReadCancelled(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	r.SetHelper("hang", longTimeout)
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan bool, 2)
	r.OnStart(func(string, *os.Process) { started <- true })
	ended := make(chan error)
	for range 3 { // one more than run at a time
		go func() {
			_, err := r.Read(ctx, "", "a.md", "", strings.NewReader("text"))
			ended <- err
		}()
	}
	<-started
	<-started
	cancel()
	for range 3 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
}

// waitingContext reports on waits that its user waits for something.
type waitingContext struct {
	context.Context
	waits chan<- struct{}
}

// Done implements [context.Context].
func (c waitingContext) Done() <-chan struct{} {
	select {
	case c.waits <- struct{}{}:
	default: // it has reported so already
	}
	return c.Context.Done()
}

// TestFairBetweenApps checks that an app's document waits for one helper of another app at most, however many documents that
// app has: the helpers here take as long as the test wants.
func TestFairBetweenApps(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	r.SetHelper("hang", longTimeout)
	type helper struct {
		app string
		*os.Process
	}
	started := make(chan helper, 200)
	r.OnStart(func(app string, p *os.Process) { started <- helper{app, p} })
	var readers sync.WaitGroup
	defer readers.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read := func(app string) {
		waits := make(chan struct{}, 1)
		readers.Go(func() {
			defer close(waits)
			_, _ = r.Read(waitingContext{ctx, waits}, app, "a.pdf", "", strings.NewReader("text"))
		})
		<-waits // it has a helper, or its place in the queue
	}
	read("acme")
	read("acme")
	slow := []helper{<-started, <-started}
	for range 100 {
		read("acme")
	}
	read("globex")
	for i := range 2 {
		if err := slow[i].Kill(); err != nil {
			t.Fatal(err)
		}
		next := <-started
		if next.app == "globex" {
			return
		}
		t.Logf("a helper for %s", next.app)
	}
	t.Error("globex waits for more than one document of acme")
}
