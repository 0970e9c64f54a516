//go:build unix

package configfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f the owner and the group of the file that info describes. A process that may not do that leaves its
// own, if it owns the file: then only the group may differ.
func keepOwner(f *os.File, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	err := f.Chown(int(stat.Uid), int(stat.Gid))
	if errors.Is(err, fs.ErrPermission) && int(stat.Uid) == os.Geteuid() {
		return nil
	}
	return err
}
