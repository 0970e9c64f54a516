// Command stoa hosts AI agents for many tenants, and is the tool to run and to call that service from a terminal.
//
// Each command is a struct of flags with a Run method, in a file of its name. All of them but serve, validate, schema,
// migrate and billing are clients: they speak the same HTTP API as everybody else.
//
// The exit code is 0 for success, 1 for a failure and 2 for a command line that makes no sense; call has more to say
// about how the agent's task went.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // zones on hosts that know none

	"github.com/alecthomas/kong"

	"stoa/agentsvc/sandbox"
)

// commands is the command line.
type commands struct {
	Serve    serveCmd    `cmd:"" help:"Run the server."`
	Validate validateCmd `cmd:"" help:"Check a configuration file and show every error in it."`
	Schema   schemaCmd   `cmd:"" help:"Print the JSON Schema of the configuration."`
	Migrate  migrateCmd  `cmd:"" help:"Bring the database to this version's schema (serve does so too), or show how far it is."`
	App      appCmd      `cmd:"" help:"Manage apps, the tenants of a server."`
	Queue    queueCmd    `cmd:"" help:"Look after runs that wait and runs that failed for good."`
	Billing  billingCmd  `cmd:"" help:"Look after what apps use and may use."`
	Audit    auditCmd    `cmd:"" help:"Read the audit trail, and verify that nobody changed it."`
	Call     callCmd     `cmd:"" help:"Send an agent a message and print its answer as it comes."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
}

// The exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitRejected    = 3   // call: the task was rejected or cancelled
	exitWaiting     = 4   // call: the task waits for an answer, an approval or a credential
	exitInterrupted = 130 // as shells count SIGINT
)

// exitError is an error that ends the process with its code. Without a cause, all has been said already.
type exitError struct {
	code  int
	cause error
}

func (e *exitError) Error() string {
	if e.cause == nil {
		return ""
	}
	return e.cause.Error()
}

func (e *exitError) Unwrap() error { return e.cause }

func main() {
	sandbox.RunHelper(os.Getenv(sandbox.HelperVariable))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(runCommand(ctx, os.Args[1:], newStandardConsole()))
}

// runCommand executes one command line and returns the exit code.
func runCommand(ctx context.Context, args []string, c *console) int {
	parser, err := kong.New(&commands{},
		kong.Name("stoa"),
		kong.Description("Stoa hosts AI agents for many tenants."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.Writers(c.out, c.err),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(c),
	)
	if err != nil {
		return c.reportError(err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
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

// usageError says how a command line went wrong and where its help is.
func usageError(err error) error {
	help := "stoa --help"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			help = node.FullPath() + " --help"
		}
	}
	return &exitError{code: exitUsage, cause: errors.New(err.Error() + " (see " + help + ")")}
}
