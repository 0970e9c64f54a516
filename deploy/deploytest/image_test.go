package deploytest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// containerConfig are the files with which podman and buildah work where there is no systemd and no network of containers.
// DIR is a folder of the test.
var containerConfig = map[string]string{
	"storage.conf":    "[storage]\ndriver = \"vfs\"\nrunroot = \"DIR/run\"\ngraphroot = \"DIR/graph\"\n",
	"containers.conf": "[containers]\nnetns = \"host\"\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n[engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n",
	"policy.json":     `{"default":[{"type":"insecureAcceptAnything"}]}`,
}

// checkImage builds the image from dist/image and runs it without a privilege, on a root that cannot be written.
func checkImage(t *testing.T, context string) {
	for program, debianPackage := range map[string]string{"buildah": "buildah", "podman": "podman", "runc": "runc"} {
		requireProgram(t, program, debianPackage)
	}
	dir := t.TempDir()
	env := append(os.Environ(), "CONTAINERS_CONF="+filepath.Join(dir, "containers.conf"), "CONTAINERS_STORAGE_CONF="+filepath.Join(dir, "storage.conf"))
	for name, text := range containerConfig {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	container := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = env
		return cmd
	}
	// RUN is not used, so that nothing of the build needs a namespace.
	build := container("buildah", "bud", "--isolation", "chroot", "--format", "docker", "--signature-policy", filepath.Join(dir, "policy.json"), "--tag", "stoa:test", context)
	if written, err := build.CombinedOutput(); err != nil {
		if strings.Contains(string(written), "operation not permitted") {
			fmt.Fprintf(os.Stdout, "    ATTENTION: %s: NOT TESTED: this kernel lets buildah build no image\n", t.Name())
			t.SkipNow()
		}
		t.Fatalf("buildah: %v\n%s", err, written)
	}
	inspected := output(t, container("buildah", "inspect", "--type", "image", "stoa:test"))
	for _, want := range []string{`"/stoa",`, `"health"`, `"User": "65532:65532"`, `"StopSignal": "SIGTERM"`} {
		if !strings.Contains(inspected, want) {
			t.Errorf("the image has not %s", want)
		}
	}
	name, port := fmt.Sprintf("stoa-test-%d", os.Getpid()), freePort(t)
	run := container("podman", "run", "--name", name, "--detach", "--no-healthcheck", "--network=host", "--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp", "--cap-drop=all",
		"--security-opt=no-new-privileges", "--volume", name+":/var/lib/stoa", "--env", "STOA_HOST=127.0.0.1", "--env", "STOA_PORT="+strconv.Itoa(port), "--env", "STOA_GRPC_PORT=0", "stoa:test")
	if written, err := run.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stdout, "    ATTENTION: %s: NOT TESTED: the image was built, but podman runs no container here: %s\n", t.Name(), lastLine(written))
		t.SkipNow()
	}
	defer func() {
		// The test's context is still open: cleanups run after this.
		_ = container("podman", "rm", "--force", "--volumes", "--time", "0", name).Run()
	}()
	var written []byte
	var err error
	for range 100 {
		if written, err = container("podman", "exec", name, "/stoa", "health", "--ready", "--timeout", "1s").CombinedOutput(); err == nil {
			break
		}
		_ = exec.CommandContext(t.Context(), "sleep", "0.1").Run()
	}
	if err != nil {
		logs, _ := container("podman", "logs", name).CombinedOutput()
		t.Fatalf("the server in the container is not healthy: %v %s\n%s", err, written, logs)
	}
	// stoa call needs the certificates, the zones and a folder for nothing else: the files must be there.
	if got := output(t, container("podman", "exec", name, "/stoa", "validate", "--help")); !strings.Contains(got, "Usage") {
		t.Errorf("stoa validate in the container: %q", got)
	}
	status := output(t, exec.CommandContext(t.Context(), "sh", "-c", `grep -hE "^(Uid|CapEff|NoNewPrivs):" /proc/"$1"/status`, "_",
		strings.TrimSpace(output(t, container("podman", "inspect", "--format", "{{.State.Pid}}", name)))))
	for _, want := range []string{"Uid:\t65532\t65532", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(status, want) {
			t.Errorf("the process in the container has not %q:\n%s", want, status)
		}
	}
	fmt.Fprintf(os.Stdout, "    ATTENTION: %s: NOT TESTED: Dockerfile.commands, whose base image cannot be had here\n", t.Name())
}

// lastLine returns the last line of what a program wrote.
func lastLine(written []byte) string {
	lines := strings.Split(strings.TrimSpace(string(written)), "\n")
	return lines[len(lines)-1]
}
