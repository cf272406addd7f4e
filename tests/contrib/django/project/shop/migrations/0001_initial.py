"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates the table."""

    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=50)),
                ("state", models.CharField(default="placed", max_length=50)),
            ],
        )
    ]
