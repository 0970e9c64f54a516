package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"stoa/cmd/stoa/server"
)

// serveCmd is `stoa serve`.
type serveCmd struct {
	Config string `type:"path" placeholder:"FILE" help:"The configuration of the default app and of this process."`
	server.Flags
}

// Run serves until ctx ends, then drains. It returns an [exitError] with the code 2 for invalid settings, including the
// files that they name: a service manager starts the server again after any other code.
func (cmd *serveCmd) Run(ctx context.Context, c *console) error {
	if c.log != nil {
		slog.SetDefault(c.log)
	}
	// Before server.New, which reads the value to restore.
	server.TuneGC()
	mine, err := server.LoadDefaultApp(cmd.Config)
	if err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	// The file is read first: it has defaults for some settings, and it names the log file.
	s, err := server.ResolveSettings(cmd.Flags, mine.Config())
	if err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	log, closeLog, err := server.NewLogger(ctx, s.Log, version)
	if err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	defer func() { _ = closeLog() }()
	slog.SetDefault(log)
	mine.WarnUnknownVariables(log)
	// Where the log is JSON on standard error, nothing else is written there, so that every line can be parsed.
	pure := s.Log.Format == "json" && s.Log.File == ""
	announce := func(text string) { c.printStatus("%s", text) }
	if pure {
		announce = func(text string) {
			for line := range strings.Lines(text) {
				log.Info(strings.TrimSuffix(line, "\n"))
			}
		}
	}
	h, err := server.New(ctx, server.Options{Version: version, Commit: buildCommit(), Settings: s, DefaultApp: mine, Log: log})
	if err == nil {
		err = errors.Join(h.ListenAndServe(ctx, announce), h.Close())
	}
	if err == nil {
		return nil
	}
	failed := &exitError{code: exitFailed, cause: err}
	var wrong interface {
		error
		WrongSetting()
	}
	if errors.As(err, &wrong) {
		failed.code = exitUsage
	}
	if pure {
		log.Error("the server ends", "error", err.Error())
		failed.cause = nil // it is reported
	}
	return failed
}

// newStartLogger is [server.NewStartLogger] for a command line that may be wrong; nil for other commands than serve.
func newStartLogger(args []string) *slog.Logger {
	if len(args) == 0 || args[0] != "serve" {
		return nil
	}
	return server.NewStartLogger(findFlag(args, "--log-format"), findFlag(args, "--config"))
}

// findFlag returns the value of a flag in args, "" if it is not there.
func findFlag(args []string, name string) (value string) {
	for i, arg := range args {
		if v, ok := strings.CutPrefix(arg, name+"="); ok {
			value = v
		} else if arg == name && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}
