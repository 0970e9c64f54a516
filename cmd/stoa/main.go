// Command stoa hosts AI agents for many tenants. The same binary is the server and its command line client.
//
// Each command is a struct of flags with a Run method, in a file named after the command. serve, validate, schema,
// migrate, doctor, backup, restore, secrets and billing work on local files or on the database; every other command is a
// client of the HTTP API (client.go) and has no access that another HTTP client would not have.
//
// The server is composed in cmd/stoa/server; serve only reads its flags. The comment at the head of
// cmd/stoa/server/server.go has the way of a message through the packages, and an index of the functions that decide what
// is asked about first.
//
// The exit code is 0 for success, 1 for a failure, 2 for a wrong command line or a wrong setting of the server, and 130
// for an interrupt. Commands that show a task (call, chat, task get) add 3 and 4 for the state of the task.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	_ "time/tzdata" // time zones for hosts without a zone database

	"github.com/alecthomas/kong"

	"stoa/agentsvc/document/extract"
	"stoa/agentsvc/sandbox"
)

// commands is the grammar of the command line. kong reads it by reflection and calls the Run method of the selected
// command.
type commands struct {
	Serve    serveCmd    `cmd:"" help:"Run the server."`
	Validate validateCmd `cmd:"" help:"Check a configuration file and show every error in it."`
	Schema   schemaCmd   `cmd:"" help:"Print the JSON Schema of the configuration."`
	Migrate  migrateCmd  `cmd:"" help:"Bring the database to this version's schema (serve does so too), or show how far it is."`
	Doctor   doctorCmd   `cmd:"" help:"Check a deployment from where it runs, and print what to do."`
	Backup   backupCmd   `cmd:"" help:"Write a backup of the SQLite database to a file, or record one that another tool has made."`
	Restore  restoreCmd  `cmd:"" help:"Make a backup the SQLite database of a stopped server."`
	App      appCmd      `cmd:"" help:"Manage apps, the tenants of a server."`
	Queue    queueCmd    `cmd:"" help:"Show the queue, and requeue runs that failed for good."`
	Billing  billingCmd  `cmd:"" help:"Manage prices, plans, budgets, credits and invoices."`
	Secrets  secretsCmd  `cmd:"" help:"Show whether a former master key is still needed."`
	Audit    auditCmd    `cmd:"" help:"Read the audit trail, and verify that it was not changed."`
	Call     callCmd     `cmd:"" help:"Send an agent a message and print its answer as it comes."`
	Chat     chatCmd     `cmd:"" help:"Talk with an agent: one conversation, a message a line."`
	Task     taskCmd     `cmd:"" help:"List, show and cancel tasks, and decide on the tool calls that they wait with."`
	Docs     docsCmd     `cmd:"" help:"Upload, list, search and delete the documents that agents answer from."`
	Health   healthCmd   `cmd:"" help:"Ask a server whether it serves, as health checks of containers do."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
}

// Exit codes of the process. Scripts depend on them: they are part of the command line's contract (see callCmd.Help).
const (
	exitFailed      = 1
	exitUsage       = 2
	exitRejected    = 3   // the task was rejected or cancelled
	exitWaiting     = 4   // the task waits for input, an approval or a credential
	exitInterrupted = 130 // 128 + SIGINT, as shells report it
)

// exitError is an error that sets the process's exit code. With a nil cause nothing more is printed: the command has
// already reported the problem.
type exitError struct {
	code  int // one of the exit constants
	cause error
}

// Error returns the text of the cause, "" without one.
func (e *exitError) Error() string {
	if e.cause == nil {
		return ""
	}
	return e.cause.Error()
}

// Unwrap returns the cause for errors.Is and errors.As.
func (e *exitError) Unwrap() error { return e.cause }

// main runs one command and exits with its code. The RunHelper functions must come first: the sandbox starts this
// executable again as its helper, and the helper must become the sandboxed program before anything else is initialised.
// That program may be this executable once more, as the reader of one hostile file.
func main() {
	sandbox.RunHelper(os.Getenv(sandbox.HelperVariable))
	extract.RunHelper(os.Getenv(extract.HelperVariable))
	c := newStandardConsole()
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if s != os.Interrupt || !c.interrupts.deliver() {
				signal.Stop(signals) // restores the default handling: a second signal ends the process at once
				cancel()
				return
			}
		}
	}()
	os.Exit(runCommand(ctx, os.Args[1:], c))
}

// runCommand executes one command line and returns the exit code. Tests call it instead of main. A command that
// failed because ctx was cancelled is reported as an interrupt, whatever error it returned.
func runCommand(ctx context.Context, args []string, c *console) int {
	parser, err := kong.New(&commands{},
		kong.Name("stoa"),
		kong.Description("Stoa hosts AI agents for many tenants."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.Writers(c.out, c.err),
		kong.Vars{"defaultServer": defaultServer},
		// BindTo and Bind make ctx and c parameters of the commands' Run methods.
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(c),
	)
	if err != nil {
		return c.reportError(err)
	}
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "--version": // the usual spelling of other programs
		args = append([]string{"version"}, args[1:]...)
	}
	c.log = newStartLogger(args)
	command, err := parser.Parse(args)
	if err != nil {
		return c.reportError(usageError(err))
	}
	err = command.Run()
	if err != nil && ctx.Err() != nil {
		err = &exitError{code: exitInterrupted}
	}
	return c.reportError(err)
}

// usageError returns an [exitError] with the code 2 that repeats err and names the help of the command that was
// parsed so far.
func usageError(err error) error {
	help := "stoa --help"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			help = node.FullPath() + " --help"
		}
	}
	text := err.Error()
	if m := numberAsFlag.FindStringSubmatch(text); m != nil {
		text = fmt.Sprintf("%s: a value that begins with - goes after all flags and --, as in %s ... -- %s", m[0], strings.TrimSuffix(help, " --help"), m[1])
	}
	return &exitError{code: exitUsage, cause: errors.New(text + " (see " + help + ")")}
}

// numberAsFlag matches the parser's error for a number below zero, which it takes for a flag.
var numberAsFlag = regexp.MustCompile(`^unknown flag (-[0-9.])`)
