//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
)

// RunHelper does nothing: this system has no sandbox and starts no helper.
func RunHelper(string) {}

// probeBackend returns the backend of a system without a sandbox: it refuses untrusted programs.
func (h *Host) probeBackend() backend {
	return backend{name: "none", untrustedErr: errors.New("programs run only in a sandbox, and this operating system has none")}
}

// logCapabilities logs nothing.
func (b backend) logCapabilities(*slog.Logger) {}

// ChownFolder does nothing: no program runs as another user.
func (h *Host) ChownFolder(string) error { return nil }

// account and cgroupFactory exist on Linux only.
type (
	account       struct{}
	cgroupFactory struct{}
)

// buildCommand returns a command without confinement, for programs of the operator.
func (h *Host) buildCommand(ctx context.Context, _ backend, p Program) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, p.File)
	cmd.Args, cmd.Env, cmd.Dir = p.Args, p.Env, p.Folder
	return cmd, nil
}

// Kill kills the command's process if it was started. Processes that it started are not found.
func Kill(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = cmd.Process.Kill()
	}
}
