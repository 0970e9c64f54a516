package main

import (
	"context"
	"errors"
	"log/slog"

	"stoa/cmd/stoa/server"
)

// serveCmd is `stoa serve`.
type serveCmd struct {
	Config string `type:"path" placeholder:"FILE" help:"The configuration of the default app and of this process."`
	server.Flags
}

// Run serves until ctx ends, then drains. It returns an [exitError] with the code 2 for invalid settings.
func (cmd *serveCmd) Run(ctx context.Context, c *console) error {
	// Before server.New, which reads the value to restore.
	server.TuneGC()
	mine, err := server.LoadDefaultApp(cmd.Config)
	if err != nil {
		return err
	}
	// The file is read first: it has defaults for some settings, and it names the log file.
	s, err := server.ResolveSettings(cmd.Flags, mine.Config())
	if err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	log, closeLog, err := server.NewLogger(ctx, s.Log, version)
	if err != nil {
		return err
	}
	defer func() { _ = closeLog() }()
	slog.SetDefault(log)
	h, err := server.New(ctx, server.Options{Version: version, Settings: s, DefaultApp: mine, Log: log})
	if err != nil {
		return err
	}
	return errors.Join(h.ListenAndServe(ctx, func(text string) { c.printStatus("%s", text) }), h.Close())
}
