package web

func uiRoutes() []route { return nil }

func (c *call) showFault(f *fault) { c.writeFault(f) }
