//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
)

// RunHelper does nothing: this system has no sandbox, and so no helper.
func RunHelper(string) {}

func (h *Host) probeBackend() backend {
	return backend{name: "none", untrustedErr: errors.New("a program of this host needs a sandbox to be held with, and this system has none")}
}

func (k backend) logCapabilities(*slog.Logger) {}

// ChownFolder does nothing: no program runs as another user.
func (h *Host) ChownFolder(string) error { return nil }

// account and cgroupFactory are Linux's.
type (
	account       struct{}
	cgroupFactory struct{}
)

func (h *Host) buildCommand(ctx context.Context, _ backend, p Program) (*exec.Cmd, error) {
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
