"""The staging folder of a platform: its layout, leases and gc."""
