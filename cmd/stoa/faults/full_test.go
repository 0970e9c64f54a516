//go:build faults

package faults_test

// isFull is whether the long forms of the tests run.
const isFull = true
