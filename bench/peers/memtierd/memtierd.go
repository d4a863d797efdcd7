//go:build tools

// Package peers names what is built beside homenode to be measured with it.
package peers

import _ "github.com/intel/memtierd/cmd/memtierd"
