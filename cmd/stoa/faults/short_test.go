//go:build !faults

package faults_test

// isFull says whether the long forms run.
const isFull = false
