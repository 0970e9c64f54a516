//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
)

// Enter does nothing: this system has no sandbox, and so no helper.
func Enter(string) {}

func (h *Host) probe() holder {
	return holder{name: "none", untrusted: errors.New("a program of this host needs a sandbox to be held with, and this system has none")}
}

func (k holder) tell(*slog.Logger) {}

// Give does nothing: no program runs as another user.
func (h *Host) Give(string) error { return nil }

// account and cgroups are Linux's.
type (
	account struct{}
	cgroups struct{}
)

func (h *Host) command(ctx context.Context, _ holder, p Program) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, p.File)
	cmd.Args, cmd.Env, cmd.Dir = p.Args, p.Env, p.Folder
	return cmd, nil
}

// Kill ends a command that was started.
func Kill(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = cmd.Process.Kill()
	}
}
