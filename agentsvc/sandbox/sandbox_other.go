//go:build !linux

package sandbox

import (
	"context"
	"os/exec"
)

// Enter does nothing: this system has no sandbox, and so no helper.
func Enter(string) {}

func (h *Host) probe() holder { return holder{name: "none"} }

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
