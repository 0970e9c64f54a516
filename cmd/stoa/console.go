package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"unicode"

	"golang.org/x/term"
)

// console is the input and output of a command. Results go to out, messages about the work to err, so that out can be
// piped. Everything from a server is printed without control characters, which a terminal would execute.
type console struct {
	in       io.Reader
	out, err io.Writer
	// lineReader reads in, from the first promptLine on: a new one for each line would lose what it has buffered.
	lineReader *bufio.Reader
	interrupts interrupts

	// interactive means that in and err are terminals: a human can be asked.
	interactive   bool
	outIsTerminal bool // out is a terminal
	// useColor means that err is a terminal with colours; NO_COLOR and TERM=dumb turn them off.
	useColor bool
	// log writes the error of a command whose log is JSON, nil = it is written to err as text.
	log *slog.Logger
}

// newStandardConsole returns the console of the process's standard streams.
func newStandardConsole() *console {
	outShown, errShown := term.IsTerminal(int(os.Stdout.Fd())), term.IsTerminal(int(os.Stderr.Fd()))
	return &console{
		in:            os.Stdin,
		out:           os.Stdout,
		err:           os.Stderr,
		interactive:   term.IsTerminal(int(os.Stdin.Fd())) && errShown,
		outIsTerminal: outShown,
		useColor:      errShown && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

// printStatus writes a line to err about what was done.
func (c *console) printStatus(format string, args ...any) {
	fmt.Fprintln(c.err, stripControls(fmt.Sprintf(format, args...)))
}

// printLine writes a line of the result to out.
func (c *console) printLine(format string, args ...any) {
	fmt.Fprintln(c.out, stripControls(fmt.Sprintf(format, args...)))
}

// printDimmed writes a line to err in a dimmed colour: progress, not a result.
func (c *console) printDimmed(format string, args ...any) {
	line := stripControls(fmt.Sprintf(format, args...))
	if c.useColor {
		line = "\x1b[2m" + line + "\x1b[0m"
	}
	fmt.Fprintln(c.err, line)
}

// printText writes text of an agent to out: unchanged into a file or pipe, without control characters on a terminal.
func (c *console) printText(text string) {
	if c.outIsTerminal {
		text = stripControls(text)
	}
	io.WriteString(c.out, text)
}

// printJSON writes v to out as indented JSON. A [json.RawMessage] keeps the order of its keys.
func (c *console) printJSON(v any) error {
	e := json.NewEncoder(c.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printNextPage writes to err how the next page of a list is read; next is its cursor, "" if there is none.
func (c *console) printNextPage(next string) {
	if next != "" {
		c.printStatus("there are more: add --cursor %s", quoteWord(next))
	}
}

// printTable writes rows to out in aligned columns under headers.
func (c *console) printTable(headers []string, rows [][]string) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{headers}, rows...) {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(escapeCells(row), "\t"), "\t"))
	}
	return w.Flush()
}

// promptLine asks question on err and returns the line that was typed, without surrounding white space. A secret is
// not echoed if in is a terminal. It reports false at the end of the input or of ctx; in both cases it restores the
// terminal's echo.
func (c *console) promptLine(ctx context.Context, question string, secret bool) (string, bool) {
	fmt.Fprint(c.err, stripControls(question))
	file, terminal := c.in.(*os.File)
	hidden := secret && terminal && term.IsTerminal(int(file.Fd()))
	if hidden {
		if before, err := term.GetState(int(file.Fd())); err == nil {
			defer func() {
				_ = term.Restore(int(file.Fd()), before)
				fmt.Fprintln(c.err)
			}()
		}
	} else if c.lineReader == nil {
		c.lineReader = bufio.NewReader(c.in)
	}
	answer := make(chan string, 1)
	unanswered := func() (string, bool) {
		if !hidden && question != "" {
			fmt.Fprintln(c.err) // ends the line of the question
		}
		return "", false
	}
	// A read from a terminal cannot be cancelled: when ctx ends first, this goroutine stays until the process exits.
	go func() {
		defer close(answer)
		if hidden {
			if line, err := term.ReadPassword(int(file.Fd())); err == nil {
				answer <- string(line)
			}
			return
		}
		if line, err := c.lineReader.ReadString('\n'); err == nil || line != "" {
			answer <- line
		}
	}()
	select {
	case <-ctx.Done():
		return unanswered()
	case line, ok := <-answer:
		if !ok {
			return unanswered()
		}
		return strings.TrimSpace(line), true
	}
}

// readInput returns the content of a file, or of standard input for "-".
func (c *console) readInput(name string) (string, error) {
	var content []byte
	var err error
	if name == "-" {
		content, err = io.ReadAll(io.LimitReader(c.in, maxResponseBytes))
	} else {
		content, err = os.ReadFile(name)
	}
	return string(content), err
}

// reportError writes err to c.log or c.err unless its text is empty, and returns the exit code: 0 for nil, that of an
// [exitError], else exitFailed.
func (c *console) reportError(err error) int {
	if err == nil {
		return 0
	}
	code := exitFailed
	var e *exitError
	if errors.As(err, &e) {
		code = e.code
	}
	switch text := err.Error(); {
	case text == "":
	case c.log != nil:
		c.log.Error("the server ends", "error", text)
	default:
		mark := "stoa:"
		if c.useColor {
			mark = "\x1b[31m" + mark + "\x1b[0m"
		}
		fmt.Fprintln(c.err, mark, stripControls(text))
	}
	return code
}

// escapeCells returns the cells of a row with control characters, line breaks and marks of the direction of writing as
// escapes: an id or a title with such a character could otherwise look like another row.
func escapeCells(row []string) []string {
	out := make([]string, len(row))
	for i, cell := range row {
		var b strings.Builder
		for _, r := range cell {
			if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
				quoted := strconv.QuoteRuneToASCII(r)
				b.WriteString(quoted[1 : len(quoted)-1])
				continue
			}
			b.WriteRune(r)
		}
		out[i] = b.String()
	}
	return out
}

// stripControls removes control characters except line feed and tab. Text of agents and servers could otherwise move
// the cursor or change the terminal's settings.
func stripControls(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// interrupts lets a command handle an interrupt of the process (Ctrl-C). One that no command handles ends the program.
type interrupts struct {
	mu     sync.Mutex
	caught chan struct{} // closed by the next interrupt; nil = it ends the program
}

// catch returns a channel that the next interrupt closes instead of ending the program. Only one interrupt is caught, and
// none after release.
func (i *interrupts) catch() (caught <-chan struct{}, release func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.caught = make(chan struct{})
	return i.caught, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.caught = nil
	}
}

// deliver reports whether a command handles the interrupt.
func (i *interrupts) deliver() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.caught == nil {
		return false
	}
	close(i.caught)
	i.caught = nil
	return true
}
