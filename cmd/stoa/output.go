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
	in       io.Reader
	out, err io.Writer
	lines    *bufio.Reader // of in, where it is read line by line

	prompts  bool // a human sits at in and reads err
	outShown bool // out is a terminal
	colour   bool // err is a terminal that knows colours
}

func standardConsole() *console {
	outShown, errShown := term.IsTerminal(int(os.Stdout.Fd())), term.IsTerminal(int(os.Stderr.Fd()))
	return &console{
		in:       os.Stdin,
		out:      os.Stdout,
		err:      os.Stderr,
		prompts:  term.IsTerminal(int(os.Stdin.Fd())) && errShown,
		outShown: outShown,
		colour:   errShown && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

// say writes a line about what was done.
func (c *console) say(format string, args ...any) {
	fmt.Fprintln(c.err, clean(fmt.Sprintf(format, args...)))
}

// aside writes a dimmed line: something to notice, not the answer.
func (c *console) aside(format string, args ...any) {
	line := clean(fmt.Sprintf(format, args...))
	if c.colour {
		line = "\x1b[2m" + line + "\x1b[0m"
	}
	fmt.Fprintln(c.err, line)
}

// print writes text that came from elsewhere to out, as it is into a file or pipe, and without control characters
// onto a terminal, which would obey them.
func (c *console) print(text string) {
	if c.outShown {
		text = clean(text)
	}
	io.WriteString(c.out, text)
}

// json writes v as indented JSON; a [json.RawMessage] keeps its order of keys.
func (c *console) json(v any) error {
	e := json.NewEncoder(c.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// table writes rows in columns under their headers.
func (c *console) table(headers []string, rows [][]string) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{headers}, rows...) {
		fmt.Fprintln(w, strings.TrimRight(clean(strings.Join(row, "\t")), "\t"))
	}
	return w.Flush()
}

// line asks for a line, trimmed, which is not shown where it is secret and a terminal is there to hide it. It reports
// whether anybody answered before ctx ended; a terminal shows again what is typed then.
func (c *console) line(ctx context.Context, question string, secret bool) (string, bool) {
	fmt.Fprint(c.err, clean(question))
	file, terminal := c.in.(*os.File)
	hidden := secret && terminal && term.IsTerminal(int(file.Fd()))
	if hidden {
		if before, err := term.GetState(int(file.Fd())); err == nil {
			defer func() {
				_ = term.Restore(int(file.Fd()), before)
				fmt.Fprintln(c.err)
			}()
		}
	} else if c.lines == nil {
		c.lines = bufio.NewReader(c.in)
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
		if line, err := c.lines.ReadString('\n'); err == nil || line != "" {
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

// ask reads one line from a human, without showing it when it is a secret.
func (c *console) ask(question string, secret bool) (string, error) {
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

// read returns the content of a file, or of standard input for "-".
func (c *console) read(name string) (string, error) {
	var content []byte
	var err error
	if name == "-" {
		content, err = io.ReadAll(io.LimitReader(c.in, maxAnswer))
	} else {
		content, err = os.ReadFile(name)
	}
	return string(content), err
}

// report writes err, if there is something to say, and returns the exit code.
func (c *console) report(err error) int {
	if err == nil {
		return 0
	}
	code := exitFailed
	var e *exit
	if errors.As(err, &e) {
		code = e.code
	}
	if text := err.Error(); text != "" {
		mark := "stoa:"
		if c.colour {
			mark = "\x1b[31m" + mark + "\x1b[0m"
		}
		fmt.Fprintln(c.err, mark, clean(text))
	}
	return code
}

// clean removes what a terminal would obey from text.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
