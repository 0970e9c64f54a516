package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"

	"golang.org/x/term"
)

// console is where a command reads and writes: what was asked for goes to out, what there is to say about it to err.
type console struct {
	in         io.Reader
	out, err   io.Writer
	lineReader *bufio.Reader // of in, where it is read line by line

	interactive   bool // a human sits at in and reads err
	outIsTerminal bool // out is a terminal
	useColor      bool // err is a terminal that knows colours
}

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

// printStatus writes a line about what was done.
func (c *console) printStatus(format string, args ...any) {
	fmt.Fprintln(c.err, stripControls(fmt.Sprintf(format, args...)))
}

// printDimmed writes a dimmed line: something to notice, not the answer.
func (c *console) printDimmed(format string, args ...any) {
	line := stripControls(fmt.Sprintf(format, args...))
	if c.useColor {
		line = "\x1b[2m" + line + "\x1b[0m"
	}
	fmt.Fprintln(c.err, line)
}

// printText writes text that came from elsewhere to out, as it is into a file or pipe, and without control characters
// onto a terminal, which would obey them.
func (c *console) printText(text string) {
	if c.outIsTerminal {
		text = stripControls(text)
	}
	io.WriteString(c.out, text)
}

// printJSON writes v as indented JSON; a [printJSON.RawMessage] keeps its order of keys.
func (c *console) printJSON(v any) error {
	e := json.NewEncoder(c.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printTable writes rows in columns under their headers.
func (c *console) printTable(headers []string, rows [][]string) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{headers}, rows...) {
		fmt.Fprintln(w, strings.TrimRight(stripControls(strings.Join(row, "\t")), "\t"))
	}
	return w.Flush()
}

// promptLine asks for a line, trimmed, which is not shown where it is secret and a terminal is there to hide it. It reports
// whether anybody answered before ctx ended; a terminal shows again what is typed then.
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
		if !hidden {
			fmt.Fprintln(c.err) // where the question's line would have ended
		}
		return "", false
	}
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

// promptValue reads one line from a human, without showing it when it is a secret.
func (c *console) promptValue(question string, secret bool) (string, error) {
	fmt.Fprint(c.err, question)
	if f, ok := c.in.(*os.File); ok && secret {
		line, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(c.err)
		return string(line), err
	}
	var line string
	_, err := fmt.Fscanln(c.in, &line)
	return line, err
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

// reportError writes err, if there is something to say, and returns the exit code.
func (c *console) reportError(err error) int {
	if err == nil {
		return 0
	}
	code := exitFailed
	var e *exitError
	if errors.As(err, &e) {
		code = e.code
	}
	if text := err.Error(); text != "" {
		mark := "stoa:"
		if c.useColor {
			mark = "\x1b[31m" + mark + "\x1b[0m"
		}
		fmt.Fprintln(c.err, mark, stripControls(text))
	}
	return code
}

// stripControls removes what a terminal would obey from text.
func stripControls(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
