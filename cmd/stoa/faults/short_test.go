//go:build !faults

package faults_test

// full says whether the long forms run.
const full = false
