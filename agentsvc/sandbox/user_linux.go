package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// defaultUser is the user of untrusted programs if [Options.User] is empty.
const defaultUser = "nobody"

// account is an unprivileged user of the host, by number.
type account struct {
	UID, GID int
}

// findAccount returns the user with a name or number, defaultUser for "". It returns an error for root and for the
// group root. A number that is not in the user database has the group of the same number.
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

// becomeUser changes the process to user a permanently: real, effective and saved ids, without supplementary groups,
// and so without capabilities. It checks that root cannot be restored.
func (a account) becomeUser() error {
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(a.GID, a.GID, a.GID), syscall.Setresuid(a.UID, a.UID, a.UID)); err != nil {
		return fmt.Errorf("become user %d: %w", a.UID, err)
	}
	if os.Getuid() != a.UID || syscall.Setuid(0) == nil {
		return fmt.Errorf("become user %d: the process can become root again", a.UID)
	}
	return nil
}

// mapUsers starts a process in a new user namespace in which its own user and group have the same numbers as outside.
// If a is not nil, a is mapped as well, so that the process can become it.
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
