package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// defaultUser is the user that programs of tenants run as where the server is root.
const defaultUser = "nobody"

// account is a user of the host without privileges.
type account struct {
	UID, GID int
}

// findAccount finds a user by name or number, and refuses root. A number without an entry in the host's list of users is
// its own group.
func findAccount(name string) (account, error) {
	if name == "" {
		name = defaultUser
	}
	var a account
	u, err := user.Lookup(name)
	if n, numeric := strconv.Atoi(name); err != nil && numeric == nil {
		a = account{UID: n, GID: n}
		if u, err = user.LookupId(name); err != nil {
			u, err = &user.User{Uid: name, Gid: name}, nil
		}
	}
	if err != nil {
		return a, fmt.Errorf("the user %q that programs of apps are to run as is not known: %w", name, err)
	}
	if a.UID, err = strconv.Atoi(u.Uid); err == nil {
		a.GID, err = strconv.Atoi(u.Gid)
	}
	switch {
	case err != nil:
		return a, fmt.Errorf("the user %q has no number: %w", name, err)
	case a.UID <= 0 || a.GID <= 0:
		return a, fmt.Errorf("the user %q that programs of apps are to run as is root or in its group", name)
	}
	return a, nil
}

// becomeUser makes the process run as a, for good: without groups, and with that without capabilities.
func (a account) becomeUser() error {
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(a.GID, a.GID, a.GID), syscall.Setresuid(a.UID, a.UID, a.UID)); err != nil {
		return fmt.Errorf("become user %d: %w", a.UID, err)
	}
	if os.Getuid() != a.UID || syscall.Setuid(0) == nil {
		return fmt.Errorf("become user %d: root can be had back", a.UID)
	}
	return nil
}

// mapUsers puts a process into a user namespace in which it is who it is outside, and may become a, if that is not nil.
func mapUsers(attr *syscall.SysProcAttr, a *account) {
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	if a != nil {
		attr.UidMappings = append(attr.UidMappings, syscall.SysProcIDMap{ContainerID: a.UID, HostID: a.UID, Size: 1})
		attr.GidMappings = append(attr.GidMappings, syscall.SysProcIDMap{ContainerID: a.GID, HostID: a.GID, Size: 1})
		attr.GidMappingsEnableSetgroups = true
	}
}
