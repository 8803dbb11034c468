package redistext

import "fmt"

// Redis's slow log shows at most ShownArgs arguments of a command (the last may be a note), and ShownArgBytes bytes of each.
const (
	ShownArgs     = 32
	ShownArgBytes = 128
)

// Shown returns a copy of the arguments of a command, shortened as Redis does it for its slow log.
func Shown(args [][]byte) []string {
	list := make([]string, 0, min(len(args), ShownArgs))
	for i, arg := range args {
		if i == ShownArgs-1 && len(args) > ShownArgs {
			return append(list, fmt.Sprintf("... (%d more arguments)", len(args)-i))
		}
		list = append(list, ShownArg(arg))
	}
	return list
}

// ShownArg returns a copy of one argument, shortened as Shown does it.
func ShownArg[T string | []byte](arg T) string {
	if more := len(arg) - ShownArgBytes; more > 0 {
		return fmt.Sprintf("%s... (%d more bytes)", arg[:ShownArgBytes], more)
	}
	return string(arg)
}
